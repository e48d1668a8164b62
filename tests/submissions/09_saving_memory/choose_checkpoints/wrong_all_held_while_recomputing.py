# counts later blocks too while one is computed again, so that it pays for more than is needed: earns 0
def choose_checkpoints(kept, inputs, flops, budget):
    best = None
    for mask in range(2 ** len(kept)):
        chosen = [i for i in range(len(kept)) if mask >> i & 1]
        held = sum(inputs[i] if i in chosen else kept[i] for i in range(len(kept)))
        most = max((held + kept[i] - inputs[i] for i in chosen), default=0)
        price = sum(flops[i] for i in chosen)
        if max(held, most) <= budget and (best is None or price < best[0]):
            best = price, chosen
    if best is None:
        raise ValueError(budget)
    return best[1]
