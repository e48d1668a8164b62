# again and again the block with the fewest FLOPs for each byte that the peak goes down: earns 0
def peak_of(kept, inputs, chosen):
    held = peak = 0
    for i in range(len(kept)):
        peak = max(peak, held + kept[i]) if i in chosen else peak
        held += inputs[i] if i in chosen else kept[i]
    return max(peak, held)


def choose_checkpoints(kept, inputs, flops, budget):
    chosen = set()
    while (now := peak_of(kept, inputs, chosen)) > budget:
        lower = {i: now - peak_of(kept, inputs, chosen | {i}) for i in range(len(kept)) if i not in chosen}
        useful = [i for i in lower if lower[i] > 0]
        if not useful:
            raise ValueError(budget)
        chosen.add(min(useful, key=lambda i: flops[i] / lower[i]))
    return sorted(chosen)
