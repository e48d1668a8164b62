"""The course's tools under a name of their own: for a project that has a ``helpers`` itself.

    from pytorch_measured import count, bench, simulate
    from pytorch_measured import trace, memory

Every module of ``helpers`` is here too, as ``pytorch_measured.memory`` for ``helpers.memory``: loaded from the same file,
with this name in its imports, so that neither name knows of the other. On the command line it is ``pytorch-measured``.
"""

import ast
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

_REAL = "helpers"
_HOME = Path(__file__).resolve().parents[1] / _REAL


def _named(name: str) -> str:
    """``helpers.memory`` as it is called here; any other name as it is."""
    return __name__ + name[len(_REAL) :] if name == _REAL or name.startswith(f"{_REAL}.") else name


class _Loader(SourceFileLoader):
    """A module of helpers, with this package's name where its own stands."""

    def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> CodeType:  # type: ignore[override]
        tree = ast.parse(data, path)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                node.module = _named(node.module)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    alias.name = _named(alias.name)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " not in node.value:
                node.value = _named(node.value)  # a module that is asked for, or known, by its name
        code: CodeType = compile(tree, path, "exec", dont_inherit=True, optimize=_optimize)
        return code

    def path_stats(self, path: Any) -> Any:
        raise OSError  # no compiled file is kept: that one is of helpers, under its own name


class _Finder(MetaPathFinder):
    """Finds ``pytorch_measured.x`` where ``helpers.x`` lies."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith(f"{__name__}."):
            return None
        at = _HOME.joinpath(*name.split(".")[1:])
        package = (at / "__init__.py").is_file()
        file = at / "__init__.py" if package else at.with_suffix(".py")
        if not file.is_file():
            return None
        inside = [str(at)] if package else None
        return spec_from_file_location(
            name, file, loader=_Loader(name, str(file)), submodule_search_locations=inside
        )


sys.meta_path.insert(0, _Finder())


def __getattr__(name: str) -> Any:
    """What ``helpers`` itself offers, and its rooms."""
    offered = (_HOME / "__init__.py").read_text(encoding="utf-8")
    home = import_module(f"{__name__}.lazy").listed(offered, __name__).get(name)
    if home is not None:
        return getattr(import_module(home), name)
    try:
        return import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as problem:
        raise AttributeError(f"{__name__} has no {name!r}") from problem


def main() -> int:
    """The command: as ``python -m helpers``."""
    return int(import_module(f"{__name__}.__main__").main())
