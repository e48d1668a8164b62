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


def norms(gpu, chunks):
    return torch.stack([(x @ x).sum() for x in chunks]).tolist()
