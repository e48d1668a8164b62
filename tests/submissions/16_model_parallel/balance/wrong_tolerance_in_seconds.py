# halves the interval until it is a microsecond wide: layers of a tenth of that are all one to it: earns 1
def balance(seconds, weights, activations, stages, microbatches, memory):
    layers = len(seconds)

    def cut(limit):
        ways = {0: []}
        for stage in range(stages):
            alive, now = min(stages - stage, microbatches), {}
            for begin, sizes in ways.items():
                took = held = 0
                for end in range(begin + 1, layers + 1):
                    took += seconds[end - 1]
                    held += weights[end - 1] + alive * activations[end - 1]
                    if took > limit or held > memory:
                        break
                    now.setdefault(end, [*sizes, end - begin])
            ways = now
        return ways.get(layers)

    low, high = 0.0, sum(seconds)
    if cut(high) is None:
        raise ValueError("nothing fits")
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if cut(middle) is None else (low, middle)
    return cut(high)
