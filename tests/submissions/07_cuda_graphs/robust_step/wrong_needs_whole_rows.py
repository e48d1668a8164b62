# takes x apart by its memory: a batch that lies by columns is read as another one: earns 0
def robust_step(weight, x, y, keep, lr, max_norm):
    x = x.as_strided(x.shape, (x.shape[1], 1))
    rows, target = torch.where(keep[:, None], x, 0.0), torch.where(keep, y, 0.0)
    grad = 2 * rows.T @ (rows @ weight - target) / keep.sum().clamp(min=1)
    norm = grad.norm()
    moved = weight - lr * (max_norm / norm).clamp(max=1.0) * grad
    weight.copy_(torch.where(torch.isfinite(norm), moved, weight))
