# waits for the stream after the next copy was launched: this batch waits for that one too: earns 1
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
        gpu.current_stream().wait_stream(side)
        here.record_stream(gpu.current_stream())
        yield here
