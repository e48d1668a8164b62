"""A GPU that is not there: PyTorch's `meta` device with a clock, a queue and a data sheet.

    gpu = simulate("H100")
    with gpu:
        x = torch.randn(4096, 4096, device=gpu.device)
        y = x @ x              # returns when it is launched
        gpu.synchronize()      # returns when it is done
    print(gpu.kernels[-1])

The device itself is in `machine` and `timeline`; around it are the rooms: operators, cost, memory and its allocator,
graphs, the world of other ranks, and what is written. `gpu` puts torch.cuda's names on them.

Tensors have shapes and no values: `.item()` is 0, `.cpu()` is zeros, all() holds, nonzero() selects everything.
Absolute times rest on shares fitted to public measurements (`cost.calibration`) and on round assumptions about the
host (`devices.Assumptions`); what waits for what does not. Not simulated: sparse tensors, torch.compile, cuDNN's
LSTM and GRU (they run as the single operators that PyTorch has beside them), several GPUs in one process (one rank
of many: `gpu.world`).
"""

from helpers.simulator.accesses import Access, Race
from helpers.simulator.allocator import CachingAllocator, OutOfMemory
from helpers.simulator.devices import DEVICES, Assumptions, Device
from helpers.simulator.gpu import SimGPU, SimulationError, active, simulate
from helpers.simulator.real_gpu import RealGPU
from helpers.simulator.streams import Event, Stream
from helpers.simulator.timeline import Host, Kernel
from helpers.simulator.world.collectives import Collective

__all__ = [
    "DEVICES", "Access", "Assumptions", "CachingAllocator", "Collective", "Device", "Event", "Host", "Kernel",
    "OutOfMemory", "Race", "RealGPU", "SimGPU", "SimulationError", "Stream", "active", "simulate",
]  # fmt: skip
