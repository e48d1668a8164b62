# a launch arrives at once, the way to the GPU is left out: earns 1
def does_it_pay(
    kernels: list[float],
    copies: list[float],
    waits: bool,
    capture_s: float,
    launch_s: float = 6e-6,
    graph_launch_s: float = 10e-6,
    latency_s: float = 2e-6,
    wait_s: float = 4e-6,
) -> tuple[float, float, float]:
    def seconds(pairs):
        if not waits:
            return max(sum(c for c, _ in pairs), sum(g for _, g in pairs))
        cpu = gpu = 0.0
        for c, g in pairs:
            cpu += c
            gpu = max(gpu, cpu) + g
        return gpu + wait_s

    eager = seconds([(launch_s, k) for k in kernels])
    graphed = seconds([(launch_s, c) for c in copies] + [(graph_launch_s, sum(kernels))])
    return eager, graphed, capture_s / (eager - graphed) if graphed < eager else math.inf


