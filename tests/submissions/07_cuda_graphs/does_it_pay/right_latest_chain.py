def does_it_pay(kernels, copies, waits, capture_s, launch_s=6e-6, graph_launch_s=10e-6, latency_s=2e-6, wait_s=4e-6):
    # with waiting: the end is the latest of "this launch arrives, and everything from it on runs"
    def once(costs, works):
        arrival, best = 0.0, 0.0
        for i, c in enumerate(costs):
            arrival += c
            best = max(best, arrival + latency_s + sum(works[i:]))
        return best + wait_s if waits else max(sum(costs), sum(works))


    eager = once([launch_s] * len(kernels), list(kernels))
    graphed = once([launch_s] * len(copies) + [graph_launch_s], [*copies, sum(kernels)])
    if graphed >= eager:
        return eager, graphed, math.inf
    return eager, graphed, capture_s / (eager - graphed)
