# correct and serial: earns 0
def pipeline(gpu, pages, results, decode, compute, save, n):
    for i in range(n):
        decode(i, pages[0])
        y = compute(pages[0].to(gpu.device))
        results[0].copy_(y)
        save(i, results[0])
