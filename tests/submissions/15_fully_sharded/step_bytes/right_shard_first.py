def shard_bytes(shape, n):
    size = 4 * ((shape[0] + n - 1) // n)
    for d in shape[1:]:
        size *= d
    return size


def step_bytes(blocks, n, reshard=True):
    shard = sum(shard_bytes(shape, n) for block in blocks for shape in block)
    calls = 3 if reshard else 2
    return {
        "calls": calls * len(blocks),
        "all_gather": (calls - 1) * n * shard,
        "reduce_scatter": n * shard,
        "wire": calls * (n - 1) * shard,
    }
