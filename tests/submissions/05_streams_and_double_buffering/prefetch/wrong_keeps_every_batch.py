# keeps every batch that it has yielded, so that memory fills up: earns 1
def prefetch(gpu: Any, batches: Iterable[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Yield each batch on gpu.device, in order; while one is in use, the next is being copied.

    batches: CPU tensors of any shapes, each with memory of its own that nobody changes; may be empty. Pinned or
        not: from pageable memory it need not overlap, only be right.
    A yielded tensor is used on the stream that is current for the consumer, until the consumer asks for the next
    one. The consumer may wait for the GPU in every step, and may drop its tensor at any time.

    Takes at most 2 batches more from `batches` than it has yielded (memory!). No races.
    Simulated time of n pinned batches ≤ C + n · (max(C, K) + 60 µs): only the first copy has nothing to hide
    behind. C = bytes ÷ PCIe's rate, K = the consumer's kernels; 60 µs: launches, waits, a margin.
    """
    ### BEGIN SOLUTION
    side, source, kept = gpu.Stream(), iter(batches), []

    def launch():
        batch = next(source, None)
        if batch is None:
            return None
        with gpu.stream(side):
            return batch.to(gpu.device, non_blocking=True)

    coming = launch()
    while coming is not None:
        gpu.current_stream().wait_stream(side)
        here = coming
        kept.append(here)
        coming = launch()
        yield here
    ### END SOLUTION
