# checkpoints everything: fits, and computes all of it again: earns 0
def choose_checkpoints(kept, inputs, flops, budget):
    if max(sum(inputs[:i]) + kept[i] for i in range(len(kept))) > budget:
        raise ValueError(budget)
    return list(range(len(kept)))
