def prefetch(gpu, batches):
    # the host, and not the stream, waits for the copy: it was launched a step ago
    side, source = gpu.Stream(), iter(batches)

    def launch():
        batch = next(source, None)
        if batch is None:
            return None
        with gpu.stream(side):
            return batch.to(gpu.device, non_blocking=True), side.record_event()

    coming = launch()
    while coming is not None:
        here, arrived = coming
        coming = launch()
        arrived.synchronize()
        here.record_stream(gpu.current_stream())
        yield here
