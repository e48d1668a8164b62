# least sum of squares, not the least maximum: earns 1
# mutation: least sum of squares, not least maximum
def balance(seconds, weights, activations, stages, microbatches, memory):
    import functools
    layers = len(seconds)
    @functools.cache
    def rest(begin, stage):
        if stage == stages:
            return (0.0, ()) if begin == layers else (float("inf"), ())
        found = (float("inf"), ())
        for end in range(begin + 1, layers + 1):
            alive = min(stages - stage, microbatches)
            held = sum(weights[begin:end]) + alive * sum(activations[begin:end])
            if held <= memory:
                slowest, cut = rest(end, stage + 1)
                found = min(found, (slowest + sum(seconds[begin:end]) ** 2, (end - begin, *cut)))
        return found
    slowest, cut = rest(0, 0)
    if slowest == float("inf"):
        raise ValueError
    return list(cut)
