# as many layers for each stage, whatever they take: earns 0
def balance(seconds, weights, activations, stages, microbatches, memory):
    each, more = divmod(len(seconds), stages)
    if not each:
        raise ValueError("too few layers")
    cut, begin = [each + (r < more) for r in range(stages)], 0
    for r, n in enumerate(cut):
        part = slice(begin, begin + n)
        if sum(weights[part]) + min(stages - r, microbatches) * sum(activations[part]) > memory:
            raise ValueError("does not fit")
        begin += n
    return cut
