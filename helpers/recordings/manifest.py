"""The manifest of a folder of recordings: where, when, with what, by which code; and the folder's reader.

{"format": 1, "simulated": null or the card of a dry run, "device": {...}, "driver", "cuda", "torch", "python",
 "numpy", "system", "date", "command", "code", "experiments": {name: {"code", "seconds", "date", "files":
 {"trace" | "snapshot" | "table": {"path", "sha256", "bytes"}}, "error"}}}
"""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any

from helpers import keeping
from helpers.recordings import files

FORMAT = 1
NAME = "manifest.json"
KINDS = ("trace", "snapshot", "table")
DATA = Path(__file__).parent / "data"


class Refused(ValueError):
    """A recording that is not what its manifest says, or that may not count as one."""


def begin(code: str, simulated: str | None, device: dict[str, Any]) -> dict[str, Any]:
    """A manifest without experiments, for this machine and today."""
    import numpy
    import torch

    return {
        "format": FORMAT,
        "simulated": simulated,
        "device": device,
        "driver": "none: simulated" if simulated else _driver(),
        "cuda": torch.version.cuda or "none",
        "torch": torch.__version__,
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "processor": processor(),
        "date": date.today().isoformat(),
        "command": _command(),
        "code": code,
        "experiments": {},
    }


def _command() -> str:
    """The command line as it is noted: without the folder that was written to."""
    asked = re.sub(r"--out[ =]\S+ ?", "", " ".join(sys.argv[1:]))
    return files.scrub(f"python -m helpers.lessons.record {asked}".strip())


def _driver() -> str:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        out = subprocess.run(
            command, capture_output=True, text=True, encoding="utf-8", timeout=30, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return out.split("\n")[0].strip() or "unknown"


def processor() -> str:
    """The host's CPU model: launches and syncs cost the host's time."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor() or "unknown"
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match.group(1).strip() if match else "unknown"


def save(folder: Path, manifest: dict[str, Any]) -> None:
    text = json.dumps(manifest, indent=1, sort_keys=True) + "\n"
    files.check(text)
    keeping.write(folder / NAME, text)


def read(folder: Path, dry_runs: bool = False) -> dict[str, Any]:
    """The folder's manifest. Refused for none, an unknown format, and (unless dry_runs) a simulated run."""
    path = folder / NAME
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Refused(f"{folder.name}: no {NAME}, so nobody can say what these files are") from None
    except ValueError as problem:
        raise Refused(f"{folder.name}: {NAME} is not JSON: {problem}") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        seen = manifest.get("format") if isinstance(manifest, dict) else type(manifest).__name__
        wanted = f"this version of the course reads {FORMAT}: update one of them"
        raise Refused(f"{folder.name}: format {seen!r}, and {wanted}")
    if (card := manifest.get("simulated")) and not dry_runs:
        raise Refused(f"{folder.name}: a dry run on a simulated {card}, which is no recording of a GPU")
    missing = {"device", "torch", "date", "experiments"} - set(manifest)
    if missing:
        raise Refused(f"{folder.name}: {NAME} lacks {', '.join(sorted(missing))}")
    return manifest


@dataclass(frozen=True)
class Recording:
    """One experiment as it ran on a real GPU. trace: Kineto dict; snapshot: dict; table: list of dicts; or None."""

    name: str
    device: str
    date: str
    torch: str
    stale: bool  # whether the experiment's code has changed since
    simulated: str | None
    _packed: dict[str, bytes]

    @property
    def evidence(self) -> str:
        """The label for tables and figures."""
        if self.simulated:
            return f"simulated ({self.simulated})"
        changed = "; its code has changed since" if self.stale else ""
        return f"recorded ({short_name(self.device)}, {self.date}{changed})"

    @cached_property
    def trace(self) -> dict[str, Any] | None:
        return self._data("trace")

    @cached_property
    def snapshot(self) -> dict[str, Any] | None:
        snapshot = self._data("snapshot")
        for segment in (snapshot or {}).get("segments", []):  # JSON has no tuples
            if "segment_pool_id" in segment:
                segment["segment_pool_id"] = tuple(segment["segment_pool_id"])
        return snapshot

    @cached_property
    def table(self) -> list[dict[str, Any]] | None:
        return self._data("table")

    def _data(self, kind: str) -> Any:
        return files.unpack(self._packed[kind]) if kind in self._packed else None

    def __repr__(self) -> str:
        return f"<{self.name}: {', '.join(self._packed)} [{self.evidence}], torch {self.torch}>"


def short_name(device: str) -> str:
    """ "NVIDIA H100 80GB HBM3" → "H100": the table's name for it where there is one."""
    from helpers.simulator.devices import DEVICES

    words = device.replace("-", " ").split()
    known = [n for n in DEVICES if all(part in words for part in n.split())]
    return max(known, key=len) if known else re.sub(r"[()]", "", device.removeprefix("NVIDIA ").strip())


def load(name: str, folder: Path, dry_runs: bool = False) -> Recording | None:
    """That experiment in a folder of recordings; None if it is not in it. Refused for a file that does not fit."""
    from helpers.recordings import registry

    manifest = read(folder, dry_runs)
    entry = manifest["experiments"].get(name)
    if entry is None or entry.get("error"):
        return None
    packed = {}
    for kind, about in entry["files"].items():
        if kind not in KINDS or Path(str(about["path"])).name != about["path"]:
            raise Refused(f"{name}: the manifest names a file {about['path']!r} of kind {kind!r}")
        path = folder / about["path"]
        if not path.is_file():
            raise Refused(f"{name}: {path.name} is in the manifest and not in {folder.name}")
        data = path.read_bytes()
        if files.digest(data) != about["sha256"]:
            raise Refused(
                f"{name}: {path.name} is not the file that was recorded (its SHA-256 begins "
                f"{files.digest(data)[:12]}, the manifest says {about['sha256'][:12]}): fetch it anew"
            )
        packed[kind] = data
    known = registry.EXPERIMENTS.get(name)
    stale = known is None or known.code != entry["code"]
    device = str(manifest["device"]["name"])
    when = str(entry.get("date", manifest["date"]))
    return Recording(name, device, when, str(manifest["torch"]), stale, manifest.get("simulated"), packed)
