def pipeline(gpu, pages, results, decode, compute, save, n):
    # whole streams waited for in place of events: the copy streams hold little else
    up, down, main = gpu.Stream(), gpu.Stream(), gpu.current_stream()
    done = {}
    for i in range(n):
        up.synchronize()
        decode(i, pages[i % 2])
        with gpu.stream(up):
            x = pages[i % 2].to(gpu.device, non_blocking=True)
        main.wait_stream(up)
        x.record_stream(main)
        y = compute(x)
        down.wait_stream(main)
        if i > 1:
            done.pop(i - 2).synchronize()
            save(i - 2, results[i % 2])
        with gpu.stream(down):
            results[i % 2].copy_(y, non_blocking=True)
            done[i] = down.record_event()
        y.record_stream(down)
    for i in sorted(done):
        done[i].synchronize()
        save(i, results[i % 2])
