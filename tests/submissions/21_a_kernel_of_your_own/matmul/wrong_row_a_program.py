# a program for each row of c: b is loaded anew for every row: earns 0
@triton.jit
def kernel(a, b, c, k, n, a0, a1, b0, b1, K: tl.constexpr, N: tl.constexpr):
    i = tl.program_id(0)
    q = tl.arange(0, K)
    j = tl.arange(0, N)
    x = tl.load(a + i * a0 + q * a1, mask=q < k, other=0.0).to(tl.float32)
    y = tl.load(b + q[:, None] * b0 + j[None, :] * b1, mask=(q[:, None] < k) & (j[None, :] < n), other=0.0).to(tl.float32)
    tl.store(c + i * n + j, tl.sum(x[:, None] * y, 0), mask=j < n)


def matmul(a, b, rows=16, columns=16, inner=16):
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty(m, n, dtype=a.dtype)
    kernel[(m,)](a, b, c, k, n, *a.stride(), *b.stride(), K=triton.next_power_of_2(k), N=triton.next_power_of_2(n))
    return c
