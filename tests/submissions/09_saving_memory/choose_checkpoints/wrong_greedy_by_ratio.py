# the most bytes for a FLOP first, until it fits: earns 0
def choose_checkpoints(kept, inputs, flops, budget):
    chosen = []
    order = sorted(range(len(kept)), key=lambda i: flops[i] / max(kept[i] - inputs[i], 1e-9))
    while True:
        held = most = 0
        for i in range(len(kept)):
            most = max(most, held + kept[i] if i in chosen else 0)
            held += inputs[i] if i in chosen else kept[i]
        if max(held, most) <= budget:
            return sorted(chosen)
        if not order:
            raise ValueError(budget)
        chosen.append(order.pop(0))
