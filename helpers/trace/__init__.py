"""Read a trace and say where the time went: queue depth, idle time by cause, overlap, steps, the bottleneck.

>>> import torch
>>> from helpers import simulate, trace
>>> with simulate("H100") as gpu, gpu.profile() as profile:
...     x = torch.ones(2048, 2048, device=gpu.device)
...     for _ in range(5):
...         y = (x @ x).sum().item()
...         profile.step()
>>> t = trace.read(profile)  # or "trace.json.gz", a torch.profiler.profile, a dict

A trace is what torch.profiler writes. Where it came from, a live run, a recording or the simulator, does not
matter to anything here; it is told by `t.evidence`.
"""

from .activity import Overlap, QueueDepth, overlap, queue_depth
from .columns import Trace, Work
from .gaps import CAUSES, Idle, idle
from .ranking import Step, Top, steps, top
from .reading import TraceError, read
from .steady import Shares, shares
from .unwaited import Unwaited, unwaited
from .verdict import Verdict, classify

__all__ = [
    "CAUSES", "Idle", "Overlap", "QueueDepth", "Shares", "Step", "Top", "Trace", "TraceError", "Unwaited", "Verdict",
    "Work", "classify", "idle", "overlap", "queue_depth", "read", "shares", "steps", "top", "unwaited",
]  # fmt: skip
