"""A GPU that is not there: PyTorch's `meta` device with a clock, a queue and a data sheet.

    gpu = simulate("H100")
    with gpu:
        x = torch.randn(4096, 4096, device=gpu.device)
        y = x @ x              # returns when it is launched
        gpu.synchronize()      # returns when it is done
    print(gpu.kernels[-1])

devices: the cards and the assumptions · cost: roofline of one operator · timeline: host clock, streams,
engines · modes: operators become launches · gpu, streams: torch.cuda's names · real: the same names on a
real GPU.

Tensors have shapes and no values: `.item()` is 0, `.cpu()` is zeros, nonzero() selects everything. Absolute
times rest on uncalibrated assumptions (`devices.Assumptions`); what waits for what does not.
"""

from helpers.simulator.devices import DEVICES, Assumptions, Device
from helpers.simulator.gpu import SimGPU, SimulationError, active, simulate
from helpers.simulator.real import RealGPU, any_gpu
from helpers.simulator.streams import Event, Stream
from helpers.simulator.timeline import Host, Kernel

__all__ = [
    "DEVICES",
    "Assumptions",
    "Device",
    "Event",
    "Host",
    "Kernel",
    "RealGPU",
    "SimGPU",
    "SimulationError",
    "Stream",
    "active",
    "any_gpu",
    "simulate",
]
