# makes x contiguous by an operator before the kernel: earns 0
@triton.jit
def kernel(x, out, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, mask=at < n, other=-float("inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, 0))
    tl.store(out + row * n + at, e / tl.sum(e, 0), mask=at < n)


def softmax(x):
    x = x.contiguous()
    rows, n = x.shape
    out = torch.empty_like(x)
    kernel[(rows,)](x, out, n, BLOCK=triton.next_power_of_2(n))
    return out
