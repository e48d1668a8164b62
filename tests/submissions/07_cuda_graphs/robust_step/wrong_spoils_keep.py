# right weights, but keep, which is the caller's, is overwritten: earns 0
def robust_step(
    weight: torch.Tensor, x: torch.Tensor, y: torch.Tensor, keep: torch.Tensor, lr: float, max_norm: float
) -> None:
    """as_written, in a form that a CUDA graph can hold: same numbers, whatever the tensors hold at a replay.

    weight (n,), changed in place; x (batch, n); y (batch,); keep (batch,) of bool; all on the GPU. lr and
    max_norm > 0 are Python numbers and stay the same. x and y may hold nan or inf, in marked rows too (then the
    step is skipped, as in as_written). The CPU never waits, and no copy goes to or from it.
    """
    ### BEGIN SOLUTION
    rows, target = torch.where(keep[:, None], x, 0.0), torch.where(keep, y, 0.0)
    grad = 2 * rows.T @ (rows @ weight - target) / keep.sum().clamp(min=1)
    norm = grad.norm()
    moved = weight - lr * (max_norm / norm).clamp(max=1.0) * grad
    weight.copy_(torch.where(torch.isfinite(norm), moved, weight))
    keep.zero_()
    ### END SOLUTION
