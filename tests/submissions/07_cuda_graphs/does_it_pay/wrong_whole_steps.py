# the steps until the capture is paid back are rounded up: earns 1
def does_it_pay(kernels, copies, waits, capture_s, launch_s=6e-6, graph_launch_s=10e-6, latency_s=2e-6, wait_s=4e-6):
    def seconds(pairs):
        if not waits:
            return max(sum(c for c, _ in pairs), sum(g for _, g in pairs))
        cpu = gpu = 0.0
        for c, g in pairs:
            cpu += c
            gpu = max(gpu, cpu + latency_s) + g
        return gpu + wait_s

    eager = seconds([(launch_s, k) for k in kernels])
    graphed = seconds([(launch_s, c) for c in copies] + [(graph_launch_s, sum(kernels))])
    return eager, graphed, math.ceil(capture_s / (eager - graphed)) if graphed < eager else math.inf
