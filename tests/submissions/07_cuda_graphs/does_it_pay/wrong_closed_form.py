# launches, then the last kernel, as if the others were always short: earns 0
def does_it_pay(kernels, copies, waits, capture_s, launch_s=6e-6, graph_launch_s=10e-6, latency_s=2e-6, wait_s=4e-6):
    eager = max(len(kernels) * launch_s, sum(kernels))
    graphed = max(len(copies) * launch_s + graph_launch_s, sum(copies) + sum(kernels))
    if waits:
        eager = len(kernels) * launch_s + latency_s + kernels[-1] + wait_s
        graphed = len(copies) * launch_s + graph_launch_s + latency_s + sum(kernels) + wait_s
    return eager, graphed, capture_s / (eager - graphed) if graphed < eager else math.inf
