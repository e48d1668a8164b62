def prefetch(gpu, batches):
    # no record_stream: the side stream waits for the consumer's launched work before it takes memory again
    side, source = gpu.Stream(), iter(batches)

    def launch():
        for batch in source:
            side.wait_stream(gpu.current_stream())
            with gpu.stream(side):
                return batch.to(gpu.device, non_blocking=True)

    coming = launch()
    while coming is not None:
        gpu.current_stream().wait_stream(side)
        here, coming = coming, launch()
        yield here
    side.wait_stream(gpu.current_stream())
