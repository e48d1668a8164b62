# the mean over all rows: earns 0
def robust_step(weight, x, y, keep, lr, max_norm):
    rows, target = torch.where(keep[:, None], x, 0.0), torch.where(keep, y, 0.0)
    grad = 2 * rows.T @ (rows @ weight - target) / len(x)
    norm = grad.norm()
    moved = weight - lr * (max_norm / norm).clamp(max=1.0) * grad
    weight.copy_(torch.where(torch.isfinite(norm), moved, weight))
