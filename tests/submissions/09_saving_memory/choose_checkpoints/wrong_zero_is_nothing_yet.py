# takes a price of 0 for none found yet: earns 1
def choose_checkpoints(kept, inputs, flops, budget):
    best, price = None, 0
    for mask in range(1, 2 ** len(kept) + 1):
        chosen = [i for i in range(len(kept)) if (mask - 1) >> i & 1]
        held = most = 0
        for i, whole in enumerate(kept):
            if i in chosen:
                most = max(most, held + whole)
            held += inputs[i] if i in chosen else whole
        cost = sum(flops[i] for i in chosen)
        if max(held, most) <= budget and (not price or cost < price):
            best, price = chosen, cost
            if not chosen:
                return []
    if best is None:
        raise ValueError("nothing fits")
    return best
