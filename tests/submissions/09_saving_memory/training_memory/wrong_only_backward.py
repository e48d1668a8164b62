# knows no peak but the one in backward: earns 0
def training_memory(rows, width, depth):
    n = depth * (8 * width**2 + 7 * width)
    saved = 4 * rows * (depth * (10 * width + 2) + width)
    return {"static": 12 * n, "saved": saved, "peak": 12 * n + saved + 16 * (rows + width) * width}
