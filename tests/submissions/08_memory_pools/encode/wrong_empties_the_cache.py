# gives the cache back after every document: the memory fits, and the host waits: earns 0
from helpers import simulator


def encode(batches, up, down):
    gpu, results = simulator.active(), []
    for x in batches:
        wide = (x @ up).relu_()
        results.append(wide @ down)
        del wide
        if gpu is not None:
            gpu.empty_cache()
    return results
