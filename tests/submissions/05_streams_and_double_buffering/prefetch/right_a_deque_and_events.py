# A queue of (tensor, event): the consumer's stream waits for the event of its own batch, not for the whole side stream.
from collections import deque


def prefetch(gpu, batches):
    side, line = gpu.Stream(), deque()
    source = iter(batches)

    def more():
        for batch in source:
            with gpu.stream(side):
                there, done = batch.to(gpu.device, non_blocking=True), gpu.Event()
                done.record()
            line.append((there, done))
            return

    more()
    while line:
        x, done = line.popleft()
        more()
        gpu.current_stream().wait_event(done)
        x.record_stream(gpu.current_stream())
        yield x
        del x
