import functools


def balance(seconds, weights, activations, stages, microbatches, memory):
    layers = len(seconds)

    @functools.cache
    def rest(begin, stage):
        """(slowest, cut) of the stages from this one on."""
        if stage == stages:
            return (0.0, ()) if begin == layers else (float("inf"), ())
        found = (float("inf"), ())
        for end in range(begin + 1, layers + 1):
            held = sum(
                weights[i] + min(stages - stage, microbatches) * activations[i] for i in range(begin, end)
            )
            if held <= memory:
                slowest, cut = rest(end, stage + 1)
                found = min(found, (max(slowest, sum(seconds[begin:end])), (end - begin, *cut)))
        return found

    slowest, cut = rest(0, 0)
    if slowest == float("inf"):
        raise ValueError("does not fit")
    return list(cut)
