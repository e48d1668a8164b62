# computes in the default stream, which is the caller's only if he has opened no other: earns 2
def pipeline(gpu, pages, results, decode, compute, save, n):
    up, down, here = gpu.Stream(), gpu.Stream(), gpu.default_stream()
    read, arrived = ([gpu.Event(), gpu.Event()] for _ in range(2))
    for i in range(n + 2 if n else 0):
        k = i % 2
        if i < n:
            read[k].synchronize()
            decode(i, pages[k])
            with gpu.stream(up):
                x = pages[k].to(gpu.device, non_blocking=True)
                read[k].record()
            here.wait_stream(up)
            x.record_stream(here)
            with gpu.stream(here):
                y = compute(x)
        if i >= 2:
            arrived[k].synchronize()
            save(i - 2, results[k])
        if i < n:
            down.wait_stream(here)
            with gpu.stream(down):
                results[k].copy_(y, non_blocking=True)
                arrived[k].record()
            y.record_stream(down)
