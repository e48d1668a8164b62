# the larger of the sums also where nothing overlaps: earns 0
def does_it_pay(kernels, copies, waits, capture_s, launch_s=6e-6, graph_launch_s=10e-6, latency_s=2e-6, wait_s=4e-6):
    extra = latency_s + wait_s if waits else 0.0
    eager = max(len(kernels) * launch_s, sum(kernels)) + extra
    graphed = max(len(copies) * launch_s + graph_launch_s, sum(copies) + sum(kernels)) + extra
    return eager, graphed, capture_s / (eager - graphed) if graphed < eager else math.inf
