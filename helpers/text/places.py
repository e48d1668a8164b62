"""Say where a line is, the same on every machine: the file's name, or the notebook's cell."""

import linecache
import re
from pathlib import PurePath

#: ipykernel compiles each cell as a file of this kind; the grader as <cell N>, IPython as <ipython-input-…>
_CELL = re.compile(r"ipykernel_\d+|^<(cell|ipython-input|stdin)|^<test")
_RESUMED = re.compile(r"torch_dynamo_resume_in_(\w+)_at_\d+$")


def where(file: str, line: int) -> str:
    """``model.py:12``; ``torch/nn/modules/linear.py:134`` for a library; ``cell, line 3`` in a notebook."""
    if _CELL.search(file):
        return f"cell, line {line}"
    parts = PurePath(file).parts
    if "site-packages" in parts:
        return "/".join(parts[parts.index("site-packages") + 1 :]) + f":{line}"
    return f"{parts[-1] if parts else file}:{line}"


def source(file: str, line: int) -> str:
    """The text of that line; "" where its source is not to be had."""
    return linecache.getline(file, line).strip()


def function(name: str, file: str = "") -> str:
    """A function's name; what Dynamo made of its rest after a graph break is named after it."""
    if name == "inner" and file.endswith("external_utils.py"):
        return "a module of torch.nn"  # Dynamo calls it through a wrapper of its own
    resumed = _RESUMED.match(name)
    return f"{resumed[1]}, resumed" if resumed else name
