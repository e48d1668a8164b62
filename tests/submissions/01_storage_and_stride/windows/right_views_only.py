def windows(x, size, step=1):
    if size > x.shape[0]:
        raise ValueError
    many = 1 + (x.shape[0] - size) // step
    return torch.as_strided(x, (many, size), (x.stride(0) * step, x.stride(0)))


def diagonal_blocks(x, size):
    n = x.shape[0]
    if n % size != 0:
        raise ValueError
    blocks = x.unflatten(0, (n // size, size)).unflatten(2, (n // size, size))
    return blocks.diagonal(dim1=0, dim2=2).movedim(-1, 0)
