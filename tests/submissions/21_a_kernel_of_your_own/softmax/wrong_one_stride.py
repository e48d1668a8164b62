# takes for granted that a row's numbers lie side by side: earns 0
@triton.jit
def kernel(x, out, s0, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * s0 + at, mask=at < n, other=-float("inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, 0))
    tl.store(out + row * n + at, e / tl.sum(e, 0), mask=at < n)


def softmax(x):
    rows, n = x.shape
    out = torch.empty(rows, n, dtype=x.dtype)
    kernel[(rows,)](x, out, x.stride(0), n, BLOCK=triton.next_power_of_2(n))
    return out
