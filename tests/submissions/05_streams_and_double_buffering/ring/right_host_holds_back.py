def ring(gpu, pages):
    # new tensors, but the host never gets more than two steps ahead
    side, sums, done = gpu.Stream(), [], []
    for i, page in enumerate(pages):
        if i > 1:
            done[i - 2].synchronize()
        with gpu.stream(side):
            x = page.to(gpu.device, non_blocking=True)
        gpu.current_stream().wait_stream(side)
        x.record_stream(gpu.current_stream())
        sums.append((x @ x).sum())
        del x
        done.append(gpu.current_stream().record_event())
    return torch.stack(sums)
