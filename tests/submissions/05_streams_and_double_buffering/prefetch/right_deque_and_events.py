from collections import deque


def prefetch(gpu, batches):
    side, waiting = gpu.Stream(), deque()
    for batch in batches:
        with gpu.stream(side):
            x = batch.to(gpu.device, non_blocking=True)
            arrived = gpu.Event()
            arrived.record()
        waiting.append((x, arrived))
        if len(waiting) == 2:
            x, arrived = waiting.popleft()
            arrived.wait(gpu.current_stream())
            x.record_stream(gpu.current_stream())
            yield x
            del x
    while waiting:
        x, arrived = waiting.popleft()
        arrived.wait(gpu.current_stream())
        x.record_stream(gpu.current_stream())
        yield x
