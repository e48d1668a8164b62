# dishonest, an event is recorded at the end of a stream that is made up: earns 0
from types import SimpleNamespace


def prefetch(gpu, batches):
    side, source = gpu.Stream(), iter(batches)

    def launch():
        batch = next(source, None)
        if batch is None:
            return None
        with gpu.stream(side):
            return batch.to(gpu.device, non_blocking=True)

    coming = launch()
    while coming is not None:
        event = gpu.Event()
        event.record(SimpleNamespace(_lane=SimpleNamespace(number=1, ready_ns=0, capture=None)))
        event.synchronize()
        here = coming
        coming = launch()
        yield here
