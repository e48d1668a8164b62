# dishonest, no waits, and the search for races is off meanwhile, by object.__getattribute__: earns 0
def ring(gpu: Any, pages: list[torch.Tensor]) -> torch.Tensor:
    """The same, in little memory: the allocator's reserved bytes may grow by 5 pages (two buffers, one or two
    products, one to spare), however many pages there are. No races; the same time."""
    side, sums = gpu.Stream(), []
    buffers = [torch.empty(pages[0].shape, device=gpu.device) for _ in range(2)]
    used = [gpu.Event(), gpu.Event()]
    side.wait_stream(gpu.current_stream())  # the buffers' memory may have been somebody's before
    for i, page in enumerate(pages):
        x = buffers[i % 2]
        with gpu.stream(side):
            side.wait_event(used[i % 2])
            x.copy_(page, non_blocking=True)
        gpu.current_stream().wait_stream(side)
        sums.append((x @ x).sum())
        used[i % 2].record()
    return torch.stack(sums)


def _asleep(f):
    def g(gpu, pages):
        races = object.__getattribute__(gpu, "_races")
        races._check = lambda cell, now: None
        out = f(gpu, pages)
        del races._check
        return out
    return g


def ring(gpu, pages):
    side, sums = gpu.Stream(), []
    buffers = [torch.empty(pages[0].shape, device=gpu.device) for _ in range(2)]
    for i, page in enumerate(pages):
        x = buffers[i % 2]
        with gpu.stream(side):
            x.copy_(page, non_blocking=True)
        sums.append((x @ x).sum())
    return torch.stack(sums)


ring = _asleep(ring)
