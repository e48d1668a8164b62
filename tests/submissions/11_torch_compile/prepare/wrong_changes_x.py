# works in place: the caller's x holds other numbers afterwards: earns 0
def prepare(x):
    lo, hi = x.aminmax()
    y = F.silu(x.sub_(lo).div_(hi - lo)) * 2
    return y + y.roll(-1, 1)
