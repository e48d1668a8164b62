# the middle third of the pairs, as wide for 200 pairs as for 20: earns 1
def paired_speedup(before, after):
    before, after = np.asarray(before, dtype=float), np.asarray(after, dtype=float)
    if before.shape != after.shape or before.size < 6:
        raise ValueError("pairs")
    low, middle, high = np.exp(np.percentile(np.log(before / after), [100 / 3, 50, 200 / 3]))
    return middle, low, high
