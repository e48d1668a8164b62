# copied: earns 0
def robust_step(weight, x, y, keep, lr, max_norm):
    rows, target = x[keep], y[keep]
    if len(rows) == 0:
        return
    error = rows @ weight - target
    grad = 2 * rows.T @ error / len(rows)
    norm = grad.norm()
    if norm > max_norm:
        grad = grad * (max_norm / norm)
    if torch.isfinite(norm):
        weight -= lr * grad
