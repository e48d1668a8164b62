# float32 by a detour over bytes: offset and stride are counted in elements of four bytes: earns 2
def windows(x, size, step=1):
    n = len(x)
    if size > n:
        raise ValueError("too long")
    e = x.element_size()
    start = (x.data_ptr() - x.untyped_storage().data_ptr()) // (4 if e == 4 else 8)
    return x.as_strided((1 + (n - size) // step, size), (step * x.stride(0), x.stride(0)), start)


def diagonal_blocks(x, size):
    if x.shape[0] % size:
        raise ValueError("does not divide")
    n, (r, c) = x.shape[0] // size, x.stride()
    return x.as_strided((n, size, size), (size * (r + c), r, c), x.storage_offset())
