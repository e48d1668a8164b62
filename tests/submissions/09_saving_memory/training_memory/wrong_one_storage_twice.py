# counts the normed x for the norm and for the layer behind it: earns 0
def training_memory(rows, width, depth):
    n = depth * (8 * width**2 + 7 * width)
    saved = 4 * rows * (depth * (11 * width + 2) + width)
    return {"static": 12 * n, "saved": saved, "peak": 12 * n + max(saved + 16 * (rows + width) * width, 4 * rows * width + 4 * n + 32 * width**2)}
