# each batch is saved before the next is decoded: two streams too many, serial: earns 0
def pipeline(gpu, pages, results, decode, compute, save, n):
    up, down, here = gpu.Stream(), gpu.Stream(), gpu.current_stream()
    for i in range(n):
        k = i % 2
        decode(i, pages[k])
        with gpu.stream(up):
            x = pages[k].to(gpu.device, non_blocking=True)
        here.wait_stream(up)
        x.record_stream(here)
        y = compute(x)
        down.wait_stream(here)
        with gpu.stream(down):
            results[k].copy_(y, non_blocking=True)
        y.record_stream(down)
        down.synchronize()
        save(i, results[k])
