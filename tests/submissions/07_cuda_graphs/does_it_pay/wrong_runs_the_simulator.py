# dishonest, runs the simulator's own timeline: earns 0

def does_it_pay(kernels, copies, waits, capture_s, launch_s=6e-6, graph_launch_s=10e-6, latency_s=2e-6, wait_s=4e-6):
    from helpers.simulator.timeline import Timeline
    from helpers.simulator.devices import device
    def run(pairs):
        line = Timeline(device("H100", launch_latency_s=latency_s, sync_s=wait_s), 0.0, 0)
        ends = []
        for _ in range(20):
            for cpu, gpu in pairs:
                line.spend("x", "operator", cpu)
                line.enqueue("x", line.lanes[0], gpu, "kernel", 0, 0)
            if waits:
                line.drain("synchronize")
            ends.append(line.host_ns / 1e9 if waits else line.kernels[-1].end_ns / 1e9)
        return (ends[-1] - ends[10]) / 9
    e = run([(launch_s, k) for k in kernels])
    g = run([(launch_s, c) for c in copies] + [(graph_launch_s, sum(kernels))])
    return e, g, capture_s / (e - g) if g < e * 0.9999 else math.inf

