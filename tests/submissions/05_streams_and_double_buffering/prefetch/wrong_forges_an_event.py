# dishonest, waits for an event that is made up: passed long ago, and knows of all: earns 0
from types import SimpleNamespace


def prefetch(gpu, batches):
    side, source = gpu.Stream(), iter(batches)

    def launch():
        batch = next(source, None)
        if batch is None:
            return None
        with gpu.stream(side):
            return batch.to(gpu.device, non_blocking=True)

    event = gpu.Event()
    coming = launch()
    while coming is not None:
        object.__setattr__(
            event, "_mark", SimpleNamespace(time_ns=0, knows=[10**9] * 3, capture=None, after=())
        )
        for wait in (event, SimpleNamespace(_mark=event._mark)):
            gpu.current_stream().wait_event(wait)
        here = coming
        coming = launch()
        yield here
