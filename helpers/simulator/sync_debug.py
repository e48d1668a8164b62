"""Being told of every wait that nobody wrote down: torch.cuda.set_sync_debug_mode, on the simulated GPU."""

from __future__ import annotations

import warnings

from helpers.simulator.frames import caller

__all__ = ["SyncDebugNames"]

_MODES = ("default", "warn", "error")


class SyncDebugNames:
    """torch.cuda's names for it. faults: the simulated GPU's."""

    faults: list[str]
    _sync_debug = 0

    def set_sync_debug_mode(self, debug_mode: int | str) -> None:
        """0 or "default": nothing; 1 or "warn": a UserWarning for each operation that waits; 2 or "error": a fault.

        As in PyTorch these are the waits of copies, of operators that need an answer (.item(), nonzero(), masks)
        and stream.synchronize(); gpu.synchronize() and events may wait (c10/cuda/CUDAFunctions.h). On a GPU
        "error" raises at that operation; here it becomes a fault, which is raised when the `with gpu:` block ends.
        RuntimeError for any other mode.
        """
        if debug_mode in _MODES:
            self._sync_debug = _MODES.index(str(debug_mode))
        elif isinstance(debug_mode, int) and debug_mode in (0, 1, 2):
            self._sync_debug = int(debug_mode)
        else:
            raise RuntimeError(
                f"invalid value of debug_mode, expected one of `default`, `warn`, `error` (or 0, 1, 2), not {debug_mode!r}"
            )

    def get_sync_debug_mode(self) -> int:
        """0, 1 or 2."""
        return self._sync_debug

    def _waits(self, name: str) -> None:
        """An operation of that name is about to wait for the device."""
        if not self._sync_debug:
            return
        text, frame = f"called a synchronizing CUDA operation: {name}", caller()
        if self._sync_debug == 2:
            line = f" (line {frame.f_lineno})" if frame is not None else ""
            self.faults.append(f"{text}{line}; set_sync_debug_mode('error') forbids it")
        elif frame is not None:  # at the line of the program, once a line as other warnings
            where, registry = frame.f_code.co_filename, frame.f_globals.setdefault("__warningregistry__", {})
            warnings.warn_explicit(text, UserWarning, where, frame.f_lineno, registry=registry)
