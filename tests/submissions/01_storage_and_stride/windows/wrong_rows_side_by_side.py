# right for matrices whose columns are neighbours, wrong for a transposed one: earns 2
def windows(x, size, step=1):
    if size > len(x):
        raise ValueError
    return x.unfold(0, size, step)


def diagonal_blocks(x, size):
    if len(x) % size:
        raise ValueError
    s0 = x.stride(0)
    return x.as_strided((len(x) // size, size, size), (size * (s0 + 1), s0, 1), x.storage_offset())
