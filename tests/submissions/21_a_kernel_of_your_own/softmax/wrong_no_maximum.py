# exponentials of the numbers as they are: they overflow: earns 0
@triton.jit
def kernel(x, out, s0, s1, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    e = tl.exp(tl.load(x + row * s0 + at * s1, mask=at < n, other=-float("inf")).to(tl.float32))
    tl.store(out + row * n + at, e / tl.sum(e, 0), mask=at < n)


def softmax(x):
    rows, n = x.shape
    out = torch.empty(rows, n, dtype=x.dtype)
    kernel[(rows,)](x, out, *x.stride(), n, BLOCK=triton.next_power_of_2(n))
    return out
