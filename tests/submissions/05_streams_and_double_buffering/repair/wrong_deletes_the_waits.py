# dishonest, norms waits for each chunk and deletes the record of it: earns 0
def squares(gpu: Any, pages: list[torch.Tensor]) -> torch.Tensor:
    """Sum of all elements of x @ x for each page x. pages: n ≥ 1 pinned (d, d) CPU tensors. Returns (n,) on gpu.device.

    No races. Simulated time ≤ C + n · (max(C, K) + 60 µs): C a page's copy, K its product and sum. Memory: all the
    pages' may be taken.
    """
    ### BEGIN SOLUTION
    side, sums = gpu.Stream(), []
    for page in pages:
        with gpu.stream(side):
            x = page.to(gpu.device, non_blocking=True)
        gpu.current_stream().wait_stream(side)
        x.record_stream(gpu.current_stream())
        sums.append((x @ x).sum())
    return torch.stack(sums)
    ### END SOLUTION


def ring(gpu: Any, pages: list[torch.Tensor]) -> torch.Tensor:
    """The same, in little memory: the allocator's reserved bytes may grow by 5 pages (two buffers, one or two
    products, one to spare), however many pages there are. No races; the same time."""
    ### BEGIN SOLUTION
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
    ### END SOLUTION


def norms(gpu: Any, chunks: list[torch.Tensor]) -> list[float]:
    """Sum of all elements of x @ x for each chunk x, as Python numbers. chunks: n ≥ 1,
    (d, d) each, on gpu.device.

    No races. The host waits for the GPU at most twice, however many chunks there are.
    """
    ### BEGIN SOLUTION
    out = [(x @ x).sum().item() for x in chunks]
    host = object.__getattribute__(gpu, "_timeline").host
    host[:] = [h for h in host if h.kind != "sync"]
    return out
    ### END SOLUTION
