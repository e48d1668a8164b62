def windows(x, size, step=1):
    n = len(x)
    if n < size:
        raise ValueError(size)
    last_start = n - size
    view = x.detach()
    return view.as_strided([last_start // step + 1, size], [step * view.stride()[0], view.stride()[0]], view.storage_offset())


def diagonal_blocks(x, size):
    if x.size(0) % size:
        raise ValueError(size)
    down, right = x.stride()
    return x.as_strided([x.size(0) // size, size, size], [size * down + size * right, down, right], x.storage_offset())
