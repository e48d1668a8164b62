# Asks the gradient, not the norm: where only the norm overflows, the factor is 0 and the weight stays too.
def robust_step(weight, x, y, keep, lr, max_norm):
    rows, target = torch.where(keep[:, None], x, 0.0), torch.where(keep, y, 0.0)
    grad = 2 * rows.T @ (rows @ weight - target) / keep.sum().clamp(min=1)
    ok = torch.isfinite(grad).all()
    moved = weight - lr * (max_norm / grad.norm()).clamp(max=1.0) * grad
    weight.copy_(torch.where(ok, moved, weight))
