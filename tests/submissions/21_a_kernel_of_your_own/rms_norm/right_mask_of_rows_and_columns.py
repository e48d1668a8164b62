@triton.jit
def norm_kernel(x, weight, y, rstd, row_step, column_step, columns, eps, BLOCK: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK).to(tl.int64)
    mask = at < columns
    v = tl.load(x + row * row_step + at * column_step, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(weight + at, mask=mask, other=0.0).to(tl.float32)
    r = 1.0 / tl.sqrt(tl.sum(v * v, 0) / columns + eps)
    tl.store(y + row * columns + at, v * r * w, mask=mask)
    tl.store(rstd + row, r)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    rows, columns = x.shape
    y, rstd = x.new_empty(x.shape), x.new_empty((rows,), dtype=torch.float32)
    BLOCK = triton.next_power_of_2(columns)
    norm_kernel[(rows,)](x, weight, y, rstd, x.stride(0), x.stride(1), columns, eps, BLOCK=BLOCK)
    return y, rstd


@triton.jit
def norm_backward_kernel(
    dy, x, weight, rstd, dx, parts, dy_row, dy_column, x_row, x_column, rows, columns, programs, turns,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Program i: rows i, i + programs, i + 2 · programs, …; its part of dweight stays on the chip until the end."""
    first, at = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK).to(tl.int64)
    inside = at < columns
    w = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    part = tl.zeros((BLOCK,), tl.float32)
    for turn in range(0, turns):
        row = first + turn * programs
        mask = inside & (row < rows)
        g = tl.load(dy + row * dy_row + at * dy_column, mask=mask, other=0.0).to(tl.float32)
        v = tl.load(x + row * x_row + at * x_column, mask=mask, other=0.0).to(tl.float32)
        r = tl.load(rstd + row, mask=row < rows, other=0.0)
        wg = w * g
        grad = r * (wg - v * (r * r) * (tl.sum(wg * v, 0) / columns))
        tl.store(dx + row * columns + at, grad, mask=mask)
        part += g * v * r
    tl.store(parts + first * columns + at, part, mask=inside)


@triton.jit
def add_parts_kernel(parts, dweight, programs, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for i in range(0, programs):
        total += tl.load(parts + i * columns + at, mask=at < columns, other=0.0)
    tl.store(dweight + at, total, mask=at < columns)


def rms_norm_backward(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, rstd: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    rows, columns = x.shape
    programs = max(1, min(rows, 16))
    dx = x.new_empty(x.shape)
    parts = x.new_empty((programs, columns), dtype=torch.float32)
    dweight = x.new_empty((columns,), dtype=torch.float32)
    norm_backward_kernel[(programs,)](
        dy, x, weight, rstd, dx, parts, dy.stride(0), dy.stride(1), x.stride(0), x.stride(1),
        rows, columns, programs, triton.cdiv(rows, programs), BLOCK=triton.next_power_of_2(columns),
    )  # fmt: skip
    add_parts_kernel[(triton.cdiv(columns, 64),)](parts, dweight, programs, columns, BLOCK=64)
    return dx, dweight
