"""What torch.compile did with a function: graphs, breaks, guards, recompiles and why, the kernels and their code.

    from helpers import compiling

    compiling.explain(fn, x)                 # runs fn once: its graphs, where they broke off and why, the guards

    with compiling.watch() as w:             # whatever is compiled in the block, with whatever backend
        g = torch.compile(fn)
        g(a); g(b)
    w.recompiles                             # [Recompile(…, reason="tensor 'x' size mismatch at index 0. …")]

    compiling.kernels(fn, x).code            # what Inductor writes for fn; nothing is built, so no compiler is needed
    compiling.seconds(fn, x)                 # how long it takes: caches empty, on disk, in memory

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
