# a buffer for every second page: the memory grows with n: earns 1
def ring(gpu: Any, pages: list[torch.Tensor]) -> torch.Tensor:
    main, side, sums = gpu.current_stream(), gpu.Stream(), []
    many = max(2, len(pages) // 2)
    buffers = [torch.empty(pages[0].shape, device=gpu.device) for _ in range(many)]
    used = [gpu.Event() for _ in range(many)]
    side.wait_stream(main)
    for i, page in enumerate(pages):
        x = buffers[i % many]
        with gpu.stream(side):
            side.wait_event(used[i % many])
            x.copy_(page, non_blocking=True)
        main.wait_stream(side)
        sums.append((x @ x).sum())
        used[i % many].record()
    return torch.stack(sums)
