# nothing makes the consumer wait for the copy: earns 0
def prefetch(gpu, batches):
    side, source = gpu.Stream(), iter(batches)

    def launch():
        batch = next(source, None)
        if batch is not None:
            with gpu.stream(side):
                return batch.to(gpu.device, non_blocking=True)

    coming = launch()
    while coming is not None:
        here, coming = coming, launch()
        here.record_stream(gpu.current_stream())
        yield here
