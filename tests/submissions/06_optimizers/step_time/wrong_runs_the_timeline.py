# dishonest, runs the simulator's own timeline, without an operator: earns 0
def step_time(
    sizes: list[int], way: str, launch_s: float, latency_s: float, floor_s: float, bytes_per_s: float
) -> float:
    from helpers.simulator.devices import device
    from helpers.simulator.timeline import Timeline

    traffic = [8, 12, 8, 12, 8, 8, 8, 16]
    kernels = {
        "for-loop": [b * n for n in sizes for b in traffic],
        "foreach": [b * sum(sizes) for b in traffic],
        "fused": [0, 28 * sum(sizes)],
    }
    if way not in kernels:
        raise ValueError(way)
    line = Timeline(device("A100", launch_latency_s=latency_s))
    for nbytes in kernels[way]:
        line.spend("launch", "operator", launch_s)
        line.enqueue("kernel", line.lanes[0], max(floor_s, nbytes / bytes_per_s))
    return line.kernels[-1].end_ns / 1e9
