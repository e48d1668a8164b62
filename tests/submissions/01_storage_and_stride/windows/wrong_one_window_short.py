# off by one: the last window is missing: earns 0
def windows(x, size, step=1):
    if size > len(x):
        raise ValueError
    return x.as_strided(((len(x) - size) // step, size), (step * x.stride(0), x.stride(0)), x.storage_offset())


def diagonal_blocks(x, size):
    if len(x) % size:
        raise ValueError
    s0, s1 = x.stride()
    return x.as_strided((len(x) // size, size, size), (size * (s0 + s1), s0, s1), x.storage_offset())
