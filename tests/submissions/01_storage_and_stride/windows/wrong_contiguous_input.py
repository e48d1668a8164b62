# takes its input for contiguous: earns 0
def windows(x, size, step=1):
    if size > len(x):
        raise ValueError
    return x.as_strided((1 + (len(x) - size) // step, size), (step, 1), x.storage_offset())


def diagonal_blocks(x, size):
    n = len(x)
    if n % size:
        raise ValueError
    return x.as_strided((n // size, size, size), (size * (n + 1), n, 1), x.storage_offset())
