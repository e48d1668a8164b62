def is_contiguous(shape, stride):
    if any(n == 0 for n in shape):
        return True
    long = [(n, s) for n, s in zip(shape, stride) if n > 1]
    merges = all(outer == n * inner for (_, outer), (n, inner) in zip(long, long[1:]))
    return merges and (not long or long[-1][1] == 1)
