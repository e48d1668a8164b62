def squares(gpu, pages):
    side, sums = gpu.Stream(), []
    for i, page in enumerate(pages):
        if i > 1:
            side.wait_event(done[-2])
        with gpu.stream(side):
            x = page.to(gpu.device, non_blocking=True)
        gpu.current_stream().wait_stream(side)
        sums.append((x @ x).sum())
        if i == 0:
            done = []
        done.append(gpu.current_stream().record_event())
        if i:
            del older
        older = x
        del x
    out = torch.stack(sums)
    side.wait_stream(gpu.current_stream())
    return out


def norms(gpu, chunks):
    page = torch.empty(len(chunks), pin_memory=True)
    for i, x in enumerate(chunks):
        page[i].copy_((x @ x).sum(), non_blocking=True)
    gpu.current_stream().record_event().synchronize()
    return page.tolist()
