# the next copy may get the memory of a batch that is still in use: earns 0
def prefetch(gpu, batches):
    side, source = gpu.Stream(), iter(batches)

    def launch():
        batch = next(source, None)
        if batch is not None:
            with gpu.stream(side):
                return batch.to(gpu.device, non_blocking=True)

    coming = launch()
    while coming is not None:
        gpu.current_stream().wait_stream(side)
        here, coming = coming, None
        coming = launch()
        yield here
