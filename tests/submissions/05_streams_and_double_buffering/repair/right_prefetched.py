def squares(gpu, pages):
    # by the event of each copy, everything kept alive until the end
    side, sums, kept = gpu.Stream(), [], []
    for page in pages:
        with gpu.stream(side):
            kept.append(page.to(gpu.device, non_blocking=True))
            arrived = side.record_event()
        gpu.current_stream().wait_event(arrived)
        sums.append((kept[-1] @ kept[-1]).sum())
    out = torch.stack(sums)
    side.wait_stream(gpu.current_stream())  # before their memory goes back
    return out


def ring(gpu, pages):
    # the next copy is launched before this product: then the stream holds nothing newer than the buffer's last use
    side, main, sums = gpu.Stream(), gpu.current_stream(), []
    buffers = [torch.empty_like(pages[0], device=gpu.device) for _ in range(2)]

    def copy(i):
        if i < len(pages):
            side.wait_stream(main)
            with gpu.stream(side):
                buffers[i % 2].copy_(pages[i], non_blocking=True)

    copy(0)
    for i in range(len(pages)):
        main.wait_stream(side)
        copy(i + 1)
        sums.append((buffers[i % 2] @ buffers[i % 2]).sum())
    return torch.stack(sums)


def norms(gpu, chunks):
    return torch.stack([(x @ x).sum() for x in chunks]).tolist()
