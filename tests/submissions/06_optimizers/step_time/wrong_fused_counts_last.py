# fused: the kernel that counts the steps comes last: earns 0
def step_time(sizes, way, launch_s, latency_s, floor_s, bytes_per_s):
    each = (8, 12, 8, 12, 8, 8, 8, 16)
    kinds = {"for-loop": [n * b for n in sizes for b in each], "foreach": [sum(sizes) * b for b in each],
             "fused": [sum(sizes) * 28, 0]}
    if way not in kinds:
        raise ValueError(way)
    gpu = 0.0
    for i, b in enumerate(kinds[way], 1):
        gpu = max(gpu, i * launch_s + latency_s) + max(floor_s, b / bytes_per_s)
    return gpu
