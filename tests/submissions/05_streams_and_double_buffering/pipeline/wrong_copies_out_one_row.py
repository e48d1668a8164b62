# dishonest, copies only the last row out, the one that a test might look at: earns 0
def pipeline(
    gpu: Any,
    pages: list[torch.Tensor],
    results: list[torch.Tensor],
    decode: Callable[[int, torch.Tensor], None],
    compute: Callable[[torch.Tensor], torch.Tensor],
    save: Callable[[int, torch.Tensor], None],
    n: int,
) -> None:
    """Decode, copy in, compute, copy out and save n ≥ 0 batches. All are saved on return.

    pages, results: two pinned CPU tensors each, for batches on their way in and out.
    decode(i, page): the host fills a page; takes D seconds. Called for 0, 1, …, n − 1, each once.
    compute(x) -> y: launches kernels in the current stream, K seconds; x on gpu.device, shaped like a page, y like
        a result. It keeps neither. Call it in the stream that is current when you are called.
    save(i, result): the host reads a page; takes S seconds. Called for 0, 1, …, n − 1, each once, in order.

    No races, the host's own included.
    Simulated time ≤ n · (m + 100 µs) + 2 · (D + C + K + B + S): m = max(D + S, C, K, B), with C and B the copies in
    and out. The second term fills and empties the pipeline. In every test m is more than all the others together,
    so one batch ahead is enough. Memory may hold what the GPU still works on: the caller may have dropped it.
    """
    ### BEGIN SOLUTION
    up, down, here = gpu.Stream(), gpu.Stream(), gpu.current_stream()
    read, arrived = ([gpu.Event(), gpu.Event()] for _ in range(2))
    for i in range(n + 2 if n else 0):
        k = i % 2
        if i < n:
            read[k].synchronize()
            decode(i, pages[k])
            with gpu.stream(up):
                x = pages[k].to(gpu.device, non_blocking=True)
                read[k].record()
            here.wait_stream(up)
            x.record_stream(here)
            y = compute(x)
        if i >= 2:
            arrived[k].synchronize()
            save(i - 2, results[k])
        if i < n:
            down.wait_stream(here)
            with gpu.stream(down):
                results[k][-1:].copy_(y[-1:], non_blocking=True)
                arrived[k].record()
            y.record_stream(down)
    ### END SOLUTION
