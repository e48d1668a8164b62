# clamps each element: earns 0
def robust_step(weight, x, y, keep, lr, max_norm):
    rows, target = torch.where(keep[:, None], x, 0.0), torch.where(keep, y, 0.0)
    grad = 2 * rows.T @ (rows @ weight - target) / keep.sum().clamp(min=1)
    weight -= lr * grad.clamp(-max_norm, max_norm).nan_to_num(0.0, 0.0, 0.0)
