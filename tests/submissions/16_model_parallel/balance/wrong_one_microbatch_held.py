# every stage is thought to hold one micro-batch: earns 0
def balance(seconds, weights, activations, stages, microbatches, memory):
    import functools

    layers = len(seconds)

    @functools.cache
    def rest(begin, stage):
        if stage == stages:
            return (0.0, ()) if begin == layers else (float("inf"), ())
        found = (float("inf"), ())
        for end in range(begin + 1, layers + 1):
            held = sum(weights[begin:end]) + 1 * sum(activations[begin:end])
            if held <= memory:
                slowest, cut = rest(end, stage + 1)
                found = min(found, (max(slowest, sum(seconds[begin:end])), (end - begin, *cut)))
        return found

    slowest, cut = rest(0, 0)
    if slowest == float("inf"):
        raise ValueError("does not fit")
    return list(cut)
