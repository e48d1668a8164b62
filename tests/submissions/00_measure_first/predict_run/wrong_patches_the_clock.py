# dishonest, makes the simulator's clock stand still: earns 0
from helpers.simulator import SimGPU

SimGPU.clock = lambda self: 1.0
SimGPU.clock_ns = lambda self: 10**9


def predict_run(gpu, step, steps):
    step()
    return gpu.clock()
