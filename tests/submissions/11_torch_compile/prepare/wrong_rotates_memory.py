# takes the neighbour in memory for the neighbour in the row: earns 0
def prepare(x):
    lo, hi = x.aminmax()
    y = F.silu((x - lo) / (hi - lo)) * 2
    return y + y.roll(-1)
