# copies everything at the start: earns 0
def prefetch(gpu, batches):
    side = gpu.Stream()
    with gpu.stream(side):
        everything = [batch.to(gpu.device, non_blocking=True) for batch in batches]
    gpu.current_stream().wait_stream(side)
    for x in everything:
        x.record_stream(gpu.current_stream())
        yield x
