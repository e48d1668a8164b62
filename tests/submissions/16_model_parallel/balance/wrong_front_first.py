# for each bound every stage takes all that it may, front first: what fits a later stage only cannot be begun there: earns 1
def balance(seconds, weights, activations, stages, microbatches, memory):
    n = len(seconds)

    def fill(slowest):
        at, cut = 0, []
        for r in range(stages):
            alive, end = min(stages - r, microbatches), at
            while (
                end < n - (stages - r - 1)
                and sum(seconds[at : end + 1]) <= slowest
                and sum(weights[at : end + 1]) + alive * sum(activations[at : end + 1]) <= memory
            ):
                end += 1
            if end == at:
                return None
            cut.append(end - at)
            at = end
        return cut if at == n else None

    for slowest in sorted({sum(seconds[i:j]) for i in range(n) for j in range(i + 1, n + 1)}):
        if (cut := fill(slowest)) is not None:
            return cut
    raise ValueError("nothing fits")
