# right, but its running sums lie in the caller's list: earns 0
def balance(seconds, weights, activations, stages, microbatches, memory):
    """Every possible slowest stage, by halving; which begins can be reached with each."""
    layers = len(seconds)
    for i in range(1, layers):
        seconds[i] += seconds[i - 1]
    own = [b - a for a, b in zip([0, *seconds], seconds)]
    limits = sorted({sum(own[i:j]) for i in range(layers) for j in range(i + 1, layers + 1)})

    def cut(limit):
        came = [{0: None}]
        for stage in range(stages):
            alive, now = min(stages - stage, microbatches), {}
            for begin in came[-1]:
                for end in range(begin + 1, layers + 1):
                    part = slice(begin, end)
                    if sum(own[part]) > limit * (1 + 1e-12):
                        break
                    if sum(weights[part]) + alive * sum(activations[part]) > memory:
                        break
                    now.setdefault(end, begin)
            came.append(now)
        if layers not in came[-1]:
            return None
        found, end = [], layers
        for step in reversed(came[1:]):
            found.append(end - step[end])
            end = step[end]
        return found[::-1]

    if cut(limits[-1]) is None:
        raise ValueError("nothing fits")
    low, high = 0, len(limits) - 1
    while low < high:
        middle = (low + high) // 2
        if cut(limits[middle]) is None:
            low = middle + 1
        else:
            high = middle
    return cut(limits[low])
