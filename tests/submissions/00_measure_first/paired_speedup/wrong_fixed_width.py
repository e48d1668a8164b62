# 2.4 % to either side of the median, whatever the scatter and the number of pairs: earns 1
def paired_speedup(before, after):
    before, after = np.asarray(before, dtype=float), np.asarray(after, dtype=float)
    if before.shape != after.shape or before.size < 6:
        raise ValueError("pairs")
    middle = float(np.median(before / after))
    return middle, middle / 1.024, middle * 1.024
