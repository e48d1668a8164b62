# launching and working, one after the other: earns 0
def step_time(sizes, way, launch_s, latency_s, floor_s, bytes_per_s):
    each = (8, 12, 8, 12, 8, 8, 8, 16)
    kinds = {"for-loop": [n * b for n in sizes for b in each], "foreach": [sum(sizes) * b for b in each],
             "fused": [0, sum(sizes) * 28]}
    if way not in kinds:
        raise ValueError(way)
    work = [max(floor_s, b / bytes_per_s) for b in kinds[way]]
    return len(work) * launch_s + latency_s + sum(work)
