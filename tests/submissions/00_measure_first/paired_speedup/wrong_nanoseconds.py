# a small constant against a division by zero spoils times of nanoseconds: earns 1
def paired_speedup(before: np.ndarray, after: np.ndarray) -> tuple[float, float, float]:
    before, after = np.asarray(before), np.asarray(after)
    if before.shape != after.shape or len(before) < 6:
        raise ValueError("need at least 6 pairs")
    d = np.log((before + 1e-9) / (after + 1e-9))
    rng = np.random.default_rng(0)
    draws = np.median(d[rng.integers(len(d), size=(1000, len(d)))], axis=1)
    low, high = np.percentile(draws, [2.5, 97.5])
    return math.exp(np.median(d)), math.exp(low), math.exp(high)
