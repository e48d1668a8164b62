# keeps numbers that lie on the threshold too: earns 1
def centre(x, limit):
    norm = x.norm()
    x = x * torch.clamp(limit / norm, max=1.0)
    kept = x.abs() >= 0.5 * limit / len(x)
    many = kept.sum()
    return x - torch.where(kept, x, 0).sum() / many, norm, many
