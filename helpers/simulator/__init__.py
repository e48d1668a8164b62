"""A GPU that is not there: PyTorch's `meta` device with a clock, a queue and a data sheet.

    gpu = simulate("H100")
    with gpu:
        x = torch.randn(4096, 4096, device=gpu.device)
        y = x @ x              # returns when it is launched
        gpu.synchronize()      # returns when it is done
    print(gpu.kernels[-1])

devices: the cards and the assumptions · cost: roofline of one operator · efficiency: shares of the peaks ·
calibration, measured, steps: where the shares come from, and how wrong they are · timeline: host clock, streams,
engines · modes, dispatch: operators become launches · gpu, streams: torch.cuda's names · real: the same names on
a real GPU · allocator: the caching allocator, alone · memory, memory_names: its tensors · frames: who asked for
them · clocks, accesses, races, advice: what is ordered, what is not, and what to add ·
graphs, capture: CUDA graphs · values, recorder: with true values · backward: its streams · kineto, writer, profile:
the run as torch.profiler would write it · autocast, attention, fused: what CUDA chooses · remember: shapes, worked
out once · hints: what torch.cuda's names say. One rank of many: collectives, traffic: torch.distributed · network: links,
nodes and times · peers: the other ranks · sharing: what a collective takes from kernels · same: values · sharded:
fully_shard · buckets, pipeline: DDP's buckets and pipeline schedules as arithmetic.

Tensors have shapes and no values: `.item()` is 0, `.cpu()` is zeros, all() holds, nonzero() selects everything.
Absolute times rest on shares fitted to public measurements (`efficiency`) and on round assumptions about the
host (`devices.Assumptions`); what waits for what does not. Not simulated: sparse tensors, torch.compile, cuDNN's
LSTM and GRU (they run as the single operators that PyTorch has beside them), several GPUs in one process (one rank
of many: `gpu.world`).
"""

from helpers.simulator.allocator import CachingAllocator, OutOfMemory
from helpers.simulator.devices import DEVICES, Assumptions, Device
from helpers.simulator.gpu import SimGPU, SimulationError, active, simulate
from helpers.simulator.races import Access, Race
from helpers.simulator.real import RealGPU, any_gpu
from helpers.simulator.streams import Event, Stream
from helpers.simulator.timeline import Host, Kernel
from helpers.simulator.traffic import Collective

__all__ = [
    "DEVICES",
    "Access",
    "Assumptions",
    "CachingAllocator",
    "Collective",
    "Device",
    "Event",
    "Host",
    "Kernel",
    "OutOfMemory",
    "Race",
    "RealGPU",
    "SimGPU",
    "SimulationError",
    "Stream",
    "active",
    "any_gpu",
    "simulate",
]
