# The latency shifts the whole step and is added once, at the end.
def step_time(sizes, way, launch_s, latency_s, floor_s, bytes_per_s):
    per = [8, 12, 8, 12, 8, 8, 8, 16]
    if way == "for-loop":
        kernels = [b * n for n in sizes for b in per]
    elif way == "foreach":
        kernels = [b * sum(sizes) for b in per]
    elif way == "fused":
        kernels = [0, 28 * sum(sizes)]
    else:
        raise ValueError(way)
    cpu = gpu = 0.0
    for b in kernels:
        cpu += launch_s
        gpu = max(gpu, cpu) + max(floor_s, b / bytes_per_s)
    return gpu + latency_s
