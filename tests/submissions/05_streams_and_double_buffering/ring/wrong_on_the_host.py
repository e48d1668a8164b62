# works on the host, where the products of the large pages would take a minute: earns 0
def ring(gpu, pages):
    return torch.stack([(page @ page).sum() for page in pages]).to(gpu.device)
