# makes its input contiguous, a copy when it is not: earns 0
def windows(x, size, step=1):
    if size > len(x):
        raise ValueError
    return x.contiguous().as_strided((1 + (len(x) - size) // step, size), (step, 1))


def diagonal_blocks(x, size):
    if len(x) % size:
        raise ValueError
    s0, s1 = x.stride()
    return x.as_strided((len(x) // size, size, size), (size * (s0 + s1), s0, s1), x.storage_offset())
