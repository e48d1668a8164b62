def does_it_pay(kernels, copies, waits, capture_s, launch_s=6e-6, graph_launch_s=10e-6, latency_s=2e-6, wait_s=4e-6):
    def loop(launches, steps=400):
        cpu = gpu = half = 0.0
        for i in range(steps):
            for c, work in launches:
                cpu += c
                start = max(gpu, cpu + latency_s)
                for k in work:
                    start += k
                gpu = start
            if waits:
                cpu = max(cpu, gpu) + wait_s
            if i == steps // 2:
                half = cpu if waits else gpu
        return ((cpu if waits else gpu) - half) / (steps - 1 - steps // 2)


    eager = loop([(launch_s, [k]) for k in kernels])
    graphed = loop([(launch_s, [c]) for c in copies] + [(graph_launch_s, kernels)])
    saved = eager - graphed
    return eager, graphed, capture_s / saved if saved > 1e-12 else float("inf")
