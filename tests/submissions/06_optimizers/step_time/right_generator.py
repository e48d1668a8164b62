# Kernels from a generator, arrival times by enumerate.
from itertools import count as numbers


def kernels(sizes, way):
    lists = [[n] for n in sizes] if way == "for-loop" else [sizes]
    if way == "fused":
        yield 4 * 2 * len(sizes)
        yield 4 * 7 * sum(sizes)
        return
    if way not in ("for-loop", "foreach"):
        raise ValueError(f"no way {way!r}")
    for group in lists:
        for arrays in (2, 3, 2, 3, 2, 2, 2, 4):
            yield 4 * arrays * sum(group)


def step_time(sizes, way, launch_s, latency_s, floor_s, bytes_per_s):
    free = 0.0
    for i, nbytes in zip(numbers(1), list(kernels(sizes, way))):
        free = max(free, i * launch_s + latency_s)
        free += max(floor_s, nbytes / bytes_per_s)
    return free
