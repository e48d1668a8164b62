"""What torch.compile did with a function: graphs, breaks, guards, recompiles and why, the kernels and their code.

>>> import torch
>>> from helpers import compiling
>>> def double(x):
...     y = x.relu() + 1
...     return y * 2 if y.sum() > 0 else y
>>> x = torch.ones(4)

Everything is read from the *structured trace*, the stream of events that PyTorch writes for its own tool tlparse
(TORCH_TRACE): it says the same whether Inductor compiled or found its caches full, and nothing of torch is replaced.
``torch._dynamo`` is imported on first use (one to three seconds), not with this module.
"""

from .asking import explain, kernels, watch
from .generated import Kernels
from .records import Break, Compilation, Graph, Guard, Recompile, Report
from .timing import Seconds, seconds
from .torches import CannotCompile

__all__ = [
    "Break", "CannotCompile", "Compilation", "Graph", "Guard", "Kernels", "Recompile", "Report", "Seconds",
    "explain", "kernels", "seconds", "watch",
]  # fmt: skip
