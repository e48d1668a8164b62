def pipeline(gpu, pages, results, decode, compute, save, n):
    up, down, main = gpu.Stream(), gpu.Stream(), gpu.current_stream()
    inputs = [torch.empty(page.shape, device=gpu.device) for page in pages]
    up.wait_stream(main)
    read, used, arrived = ([gpu.Event(), gpu.Event()] for _ in range(3))
    kept = [None, None]

    def begin(i):
        k = i % 2
        read[k].synchronize()
        decode(i, pages[k])
        with gpu.stream(up):
            used[k].wait()
            inputs[k].copy_(pages[k], non_blocking=True)
            read[k].record()
        read[k].wait()
        kept[k] = compute(inputs[k])
        used[k].record()

    def end(i):
        k = i % 2
        with gpu.stream(down):
            used[k].wait()
            results[k].copy_(kept[k], non_blocking=True)
            arrived[k].record()
        kept[k].record_stream(down)

    def store(i):
        arrived[i % 2].synchronize()
        save(i, results[i % 2])

    for i in range(n):
        begin(i)
        if i >= 2:
            store(i - 2)
        end(i)
    for i in range(max(0, n - 2), n):
        store(i)
