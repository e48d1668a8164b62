# right values, stacked into new memory: earns 0
def windows(x, size, step=1):
    if size > len(x):
        raise ValueError
    return torch.stack([x[i : i + size] for i in range(0, len(x) - size + 1, step)])


def diagonal_blocks(x, size):
    if len(x) % size:
        raise ValueError
    s0, s1 = x.stride()
    return x.as_strided((len(x) // size, size, size), (size * (s0 + s1), s0, s1), x.storage_offset())
