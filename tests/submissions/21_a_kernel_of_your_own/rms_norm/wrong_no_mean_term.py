# dx without the part that comes from the root mean square: earns 0
@triton.jit
def forward_kernel(x_ptr, w_ptr, y_ptr, r_ptr, s0, s1, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * s0 + cols * s1, mask=cols < n, other=0.0).to(tl.float32)
    rstd = tl.rsqrt(tl.sum(x * x, axis=0) / n + eps)
    w = tl.load(w_ptr + cols, mask=cols < n).to(tl.float32)
    tl.store(y_ptr + row * n + cols, x * rstd * w, mask=cols < n)
    tl.store(r_ptr + row, rstd)


def rms_norm(x, weight, eps):
    m, n = x.shape
    y = torch.empty((m, n), dtype=x.dtype, device=x.device)
    rstd = torch.empty((m,), dtype=torch.float32, device=x.device)
    forward_kernel[(m,)](x, weight, y, rstd, x.stride(0), x.stride(1), n, eps, BLOCK=triton.next_power_of_2(n))
    return y, rstd


@triton.jit
def part_kernel(dy, x, w, rstd, dx, part, d0, d1, s0, s1, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n
    g = tl.load(dy + row * d0 + cols * d1, mask=mask, other=0.0).to(tl.float32)
    v = tl.load(x + row * s0 + cols * s1, mask=mask, other=0.0).to(tl.float32)
    r = tl.load(rstd + row)
    xhat = v * r
    wg = tl.load(w + cols, mask=mask, other=0.0).to(tl.float32) * g
    tl.store(dx + row * n + cols, wg * r, mask=mask)
    tl.store(part + row * n + cols, g * xhat, mask=mask)


@triton.jit
def columns_kernel(part, dw, m, n, BLOCK: tl.constexpr):
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for row in range(0, m):
        total += tl.load(part + row * n + cols, mask=cols < n, other=0.0)
    tl.store(dw + cols, total, mask=cols < n)


def rms_norm_backward(dy, x, weight, rstd):
    m, n = x.shape
    dx = torch.empty((m, n), dtype=x.dtype)
    part = torch.empty((m, n), dtype=torch.float32)
    dw = torch.empty((n,), dtype=torch.float32)
    part_kernel[(m,)](dy, x, weight, rstd, dx, part, *dy.stride(), *x.stride(), n, BLOCK=triton.next_power_of_2(n))
    columns_kernel[(triton.cdiv(n, 64),)](part, dw, m, n, BLOCK=64)
    return dx, dw
