# launches and kernels one after the other: earns 0
def does_it_pay(kernels, copies, waits, capture_s, launch_s=6e-6, graph_launch_s=10e-6, latency_s=2e-6, wait_s=4e-6):
    eager = len(kernels) * launch_s + sum(kernels) + (latency_s + wait_s if waits else 0)
    graphed = len(copies) * launch_s + graph_launch_s + sum(copies) + sum(kernels) + (latency_s + wait_s if waits else 0)
    return eager, graphed, capture_s / (eager - graphed) if graphed < eager else math.inf
