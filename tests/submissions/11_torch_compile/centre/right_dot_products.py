def centre(x, limit):
    """No where: the mask as weights in a dot product."""
    norm = torch.linalg.vector_norm(x)
    x = x / torch.maximum(norm / limit, torch.ones_like(norm))
    size = torch.maximum(x, -x)
    weights = (size * (2 * x.shape[0]) > limit).to(x.dtype)
    return x - (weights * x).sum() / weights.sum(), norm, weights.sum().long()
