# nan times zero is nan, the step is skipped for rows that nobody wants: earns 0
def robust_step(weight, x, y, keep, lr, max_norm):
    mask = keep.float()
    rows, target = x * mask[:, None], y * mask
    grad = 2 * rows.T @ (rows @ weight - target) / mask.sum().clamp(min=1)
    norm = grad.norm()
    moved = weight - lr * (max_norm / norm).clamp(max=1.0) * grad
    weight.copy_(torch.where(torch.isfinite(norm), moved, weight))
