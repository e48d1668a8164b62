# Leaves out what is below a percent: biases, norms, statistics.
def training_memory(rows, width, depth):
    n = depth * (8 * width * width + 7 * width)
    saved = 40 * rows * width * depth + 4 * rows * width
    return {
        "static": 12.0 * n,
        "saved": saved * 1.001,
        "peak": 12 * n + max(saved + 16 * (rows + width) * width, 4 * rows * width + 4 * n + 32 * width**2),
    }
