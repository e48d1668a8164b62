# with waiting, as if all kernels but the last hid behind the launches: earns 0
def does_it_pay(kernels, copies, waits, capture_s, launch_s=6e-6, graph_launch_s=10e-6, latency_s=2e-6, wait_s=4e-6):
    def seconds(costs, works):
        if waits:
            return max(sum(costs) + latency_s + works[-1], costs[0] + latency_s + sum(works)) + wait_s
        return max(sum(costs), sum(works))


    eager = seconds([launch_s] * len(kernels), kernels)
    graphed = seconds([launch_s] * len(copies) + [graph_launch_s], [*copies, sum(kernels)])
    return eager, graphed, capture_s / (eager - graphed) if graphed < eager else math.inf
