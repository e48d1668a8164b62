# no second stream: no race, no overlap: earns 0
def ring(gpu, pages):
    return torch.stack([(x @ x).sum() for x in (page.to(gpu.device, non_blocking=True) for page in pages)])
