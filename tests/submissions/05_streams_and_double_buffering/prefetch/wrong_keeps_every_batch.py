# keeps every batch that it has yielded, so that memory fills up: earns 1
def prefetch(gpu: Any, batches: Iterable[torch.Tensor]) -> Iterator[torch.Tensor]:
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
