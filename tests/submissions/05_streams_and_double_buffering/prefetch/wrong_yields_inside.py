# yields with the side stream current, so the consumer works there: earns 0
def prefetch(gpu, batches):
    side = gpu.Stream()
    source = iter(batches)
    with gpu.stream(side):
        coming = next(source, None)
        coming = coming if coming is None else coming.to(gpu.device, non_blocking=True)
        while coming is not None:
            here, following = coming, next(source, None)
            coming = None if following is None else following.to(gpu.device, non_blocking=True)
            yield here
