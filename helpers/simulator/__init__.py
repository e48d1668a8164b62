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

from typing import TYPE_CHECKING

from helpers import lazy

if TYPE_CHECKING:
    from helpers.simulator.accesses import Access as Access
    from helpers.simulator.accesses import Race as Race
    from helpers.simulator.allocator import CachingAllocator as CachingAllocator
    from helpers.simulator.allocator import OutOfMemory as OutOfMemory
    from helpers.simulator.devices import DEVICES as DEVICES
    from helpers.simulator.devices import Assumptions as Assumptions
    from helpers.simulator.devices import Device as Device
    from helpers.simulator.gpu import SimGPU as SimGPU
    from helpers.simulator.gpu import SimulationError as SimulationError
    from helpers.simulator.gpu import active as active
    from helpers.simulator.gpu import simulate as simulate
    from helpers.simulator.real_gpu import RealGPU as RealGPU
    from helpers.simulator.streams import Event as Event
    from helpers.simulator.streams import Stream as Stream
    from helpers.simulator.timeline import Host as Host
    from helpers.simulator.timeline import Kernel as Kernel
    from helpers.simulator.world.collectives import Collective as Collective
__getattr__, __dir__, __all__ = lazy.attach(__name__)
