# a replay costs the CPU nothing: earns 0
def does_it_pay(kernels, copies, waits, capture_s, launch_s=6e-6, graph_launch_s=10e-6, latency_s=2e-6, wait_s=4e-6):
    eager = max(len(kernels) * launch_s, sum(kernels))
    graphed = sum(kernels) + sum(copies)
    if waits:
        cpu = gpu = 0.0
        for k in kernels:
            cpu += launch_s
            gpu = max(gpu, cpu + latency_s) + k
        eager, graphed = gpu + wait_s, graphed + graph_launch_s + latency_s + wait_s
    return eager, graphed, capture_s / (eager - graphed) if graphed < eager else math.inf
