def pipeline(gpu, pages, results, decode, compute, save, n):
    up, down, main = gpu.Stream(), gpu.Stream(), gpu.current_stream()
    read, arrived = [None, None], None

    def finish(i):
        arrived.synchronize()
        save(i, results[i % 2])

    for i in range(n):
        if read[i % 2] is not None:
            read[i % 2].synchronize()
        decode(i, pages[i % 2])
        with gpu.stream(up):
            x = pages[i % 2].to(gpu.device, non_blocking=True)
        read[i % 2] = up.record_event()
        main.wait_event(read[i % 2])
        x.record_stream(main)
        y = compute(x)
        down.wait_stream(main)
        with gpu.stream(down):
            results[i % 2].copy_(y, non_blocking=True)
        y.record_stream(down)
        before, arrived_now = arrived, down.record_event()
        if i:
            finish(i - 1)
        arrived = arrived_now
    if n:
        finish(n - 1)
