# right, but it empties the caller's list: earns 0
import math


def step_bytes(blocks, n, reshard=True):
    shapes, many = [], len(blocks)
    while blocks:
        shapes += blocks.pop()
    payload = sum(4 * n * math.ceil(shape[0] / n) * math.prod(shape[1:]) for shape in shapes)
    gathers = payload * (2 if reshard else 1)
    return {"calls": many * (3 if reshard else 2), "all_gather": gathers, "reduce_scatter": payload, "wire": (gathers + payload) // n * (n - 1)}
