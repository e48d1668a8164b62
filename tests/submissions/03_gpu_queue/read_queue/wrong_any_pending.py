# in flight if any kernel waits, not the one that starts next: earns 3
Times = list[tuple[int, ...]]


def depths(kernels: Times) -> list[tuple[int, int]]:
    """Given: (how many kernels are launched and not started, for how many ns), piece by piece: the curve above."""
    moments = sorted({t for kernel in kernels for t in kernel[:2]})  # between neighbours nothing changes
    return [(sum(k[0] <= a and b <= k[1] for k in kernels), b - a) for a, b in zip(moments, moments[1:])]


def read_queue(kernels: Times, copies: Times, waits: Times) -> dict[str, int]:
    if not kernels:
        raise ValueError("no kernel")
    first, last = min(k[1] for k in kernels), max(k[2] for k in kernels)
    moments = sorted({t for spans in (kernels, copies, waits) for span in spans for t in span})
    causes = {"copy": 0, "in flight": 0, "sync": 0, "host": 0}
    for a, b in zip(moments, moments[1:]):
        if a < first or b > last or any(k[1] <= a and b <= k[2] for k in kernels):
            continue
        if any(c[0] <= a and b <= c[1] for c in copies):
            cause = "copy"
        elif any(k[0] <= a and b <= k[1] for k in kernels):  # the queue is not empty
            cause = "in flight"
        elif any(w[0] <= a and b <= w[1] for w in waits):
            cause = "sync"
        else:
            cause = "host"
        causes[cause] += b - a
    return causes
