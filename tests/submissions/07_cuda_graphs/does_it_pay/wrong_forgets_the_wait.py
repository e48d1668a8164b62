# the CPU's wait at the end of a step is left out: earns 0
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
    """(seconds of an eager step, seconds of a graphed step, steps until the capture is paid back)

    All in seconds, of a long loop of equal steps in one stream. kernels: durations, in order, of a step's
    kernels. copies: durations of the copies, on the GPU, into static inputs; only the graphed step has them,
    before its replay. The CPU needs launch_s to launch a kernel or a copy, and graph_launch_s for a replay; what
    is launched can start latency_s later. waits: the CPU waits at the end of every step until the GPU is done,
    and goes on wait_s after that; else it never waits.
    capture_s: what the capture costs once. math.inf steps if the graphed step is not faster.

    Right when the two times are within 3 % of the simulated GPU, and the steps within 5 % of what follows from
    its times. By arithmetic: the simulated GPU is not there to be asked.
    """

    def seconds(pairs):
        if not waits:
            return max(sum(c for c, _ in pairs), sum(g for _, g in pairs))
        cpu = gpu = 0.0
        for c, g in pairs:
            cpu += c
            gpu = max(gpu, cpu + latency_s) + g
        return gpu

    eager = seconds([(launch_s, k) for k in kernels])
    graphed = seconds([(launch_s, c) for c in copies] + [(graph_launch_s, sum(kernels))])
    return eager, graphed, capture_s / (eager - graphed) if graphed < eager else math.inf


