def windows(x, size, step=1):
    if size > len(x):
        raise ValueError("window longer than the tensor")
    return x.unfold(0, size, step)


def diagonal_blocks(x, size):
    if len(x) % size:
        raise ValueError("size must divide n")
    return x.unfold(0, size, size).unfold(1, size, size).diagonal().permute(2, 1, 0).transpose(1, 2)
