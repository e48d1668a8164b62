# No clocks: the GPU ends with the k-th kernel's arrival plus all work from there on, for the worst k.
def step_time(sizes, way, launch_s, latency_s, floor_s, bytes_per_s):
    each = (8, 12, 8, 12, 8, 8, 8, 16)
    kinds = {
        "for-loop": lambda: [n * b for n in sizes for b in each],
        "foreach": lambda: [sum(sizes) * b for b in each],
        "fused": lambda: [8 * len(sizes), sum(sizes) * 28],
    }
    if way not in kinds:
        raise ValueError(way)
    work = [max(floor_s, b / bytes_per_s) for b in kinds[way]()]
    return max((k + 1) * launch_s + latency_s + sum(work[k:]) for k in range(len(work)))
