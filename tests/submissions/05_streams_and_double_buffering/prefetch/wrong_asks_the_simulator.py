# dishonest, no waits: the simulator's own functions hand out what the GPU keeps closed: earns 0
def prefetch(gpu, batches):
    from helpers.simulator.gpu import SimGPU
    from helpers.simulator.memory import Memory

    side, source = gpu.Stream(), iter(batches)

    def launch():
        batch = next(source, None)
        if batch is None:
            return None
        with gpu.stream(side):
            return batch.to(gpu.device, non_blocking=True)

    coming = launch()
    while coming is not None:
        for ask in (lambda: Memory(gpu, None, "").allocator._line, lambda: SimGPU._need(gpu, "")):
            try:
                ask().races.drained()
            except AttributeError:
                pass
        here = coming
        coming = launch()
        yield here
