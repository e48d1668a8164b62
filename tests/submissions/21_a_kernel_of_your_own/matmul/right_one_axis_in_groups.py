@triton.jit
def place(down, across, GROUP: tl.constexpr):
    pid = tl.program_id(0)
    in_group = GROUP * across
    first = (pid // in_group) * GROUP
    size = min(down - first, GROUP)
    return first + (pid % in_group) % size, (pid % in_group) // size


@triton.jit
def kernel(a, b, c, m, k, n, a0, a1, b0, b1, R: tl.constexpr, C: tl.constexpr, I: tl.constexpr, GROUP: tl.constexpr):
    pi, pj = place(tl.cdiv(m, R), tl.cdiv(n, C), GROUP)
    i = pi * R + tl.arange(0, R)
    j = pj * C + tl.arange(0, C)
    total = tl.zeros((R, C), tl.float32)
    for start in range(0, k, I):
        q = start + tl.arange(0, I)
        x = tl.load(a + i[:, None] * a0 + q[None, :] * a1, mask=(i[:, None] < m) & (q[None, :] < k), other=0.0)
        y = tl.load(b + q[:, None] * b0 + j[None, :] * b1, mask=(q[:, None] < k) & (j[None, :] < n), other=0.0)
        total += tl.sum(x.to(tl.float32)[:, :, None] * y.to(tl.float32)[None, :, :], 1)
    tl.store(c + i[:, None] * n + j[None, :], total, mask=(i[:, None] < m) & (j[None, :] < n))


def matmul(a, b, rows=16, columns=16, inner=16):
    m, k, n = a.shape[0], a.shape[1], b.shape[1]
    c = torch.empty((m, n), dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(m, meta["R"]) * triton.cdiv(n, meta["C"]),)
    kernel[grid](a, b, c, m, k, n, *a.stride(), *b.stride(), R=rows, C=columns, I=inner, GROUP=2)
    return c
