# fills each stage up to the mean: earns 0
def balance(seconds, weights, activations, stages, microbatches, memory):
    goal, cut, begin, layers = sum(seconds) / stages, [], 0, len(seconds)
    for stage in range(stages):
        last = layers - (stages - stage - 1)
        alive, end, held = min(stages - stage, microbatches), begin, 0
        while end < last:
            held += weights[end] + alive * activations[end]
            took = sum(seconds[begin : end + 1])
            if held > memory or (end > begin and took > goal and stage < stages - 1):
                break
            end += 1
        if end == begin:
            raise ValueError("does not fit")
        cut.append(end - begin)
        begin = end
    if begin < layers:
        raise ValueError("does not fit")
    return cut
