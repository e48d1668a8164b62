# returns the seconds as text: earns 0
def step_time(sizes, way, launch_s, latency_s, floor_s, bytes_per_s):
    per_weight = [8, 12, 8, 12, 8, 8, 8, 16]
    if way == "for-loop":
        kernels = [b * n for n in sizes for b in per_weight]
    elif way == "foreach":
        kernels = [b * sum(sizes) for b in per_weight]
    elif way == "fused":
        kernels = [0, 28 * sum(sizes)]
    else:
        raise ValueError(way)
    cpu = gpu = 0.0
    for nbytes in kernels:
        cpu += launch_s
        gpu = max(gpu, cpu + latency_s) + max(floor_s, nbytes / bytes_per_s)
    return str(gpu)
