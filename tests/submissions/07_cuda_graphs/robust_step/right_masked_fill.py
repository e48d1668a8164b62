def robust_step(weight, x, y, keep, lr, max_norm):
    drop = ~keep
    rows = x.masked_fill(drop.unsqueeze(1), 0)
    error = (rows @ weight - y).masked_fill(drop, 0)
    count = keep.sum()
    grad = 2 * rows.T @ error / count.clamp(min=1)
    norm = grad.square().sum().sqrt()
    grad = grad * torch.where(norm > max_norm, max_norm / norm, 1.0)
    step = torch.where(norm.isfinite() & (count > 0), lr * grad, 0.0)
    weight -= step
