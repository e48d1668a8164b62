# dishonest: resets the peak before it returns: earns 0
from helpers import simulator


def encode(batches, up, down):
    results = []
    for x in batches:
        wide = torch.relu(x @ up)
        results.append(wide @ down)
    gpu = simulator.active()
    if gpu is not None:
        wide = None
        allocator = gpu._memory.allocator
        allocator.empty_cache()
        allocator.reset_peak_stats()
    return results
