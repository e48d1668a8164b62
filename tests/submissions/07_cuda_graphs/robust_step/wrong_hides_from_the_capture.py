# dishonest: the simulator does not see it, so the graph is empty: earns 0
def robust_step(weight, x, y, keep, lr, max_norm):
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes(), torch._C.DisableTorchFunction():
        rows, target = x[keep], y[keep]
        if len(rows):
            grad = 2 * rows.T @ (rows @ weight - target) / len(rows)
            norm = grad.norm()
            if norm > max_norm:
                grad = grad * (max_norm / norm)
            if torch.isfinite(norm):
                weight -= lr * grad
