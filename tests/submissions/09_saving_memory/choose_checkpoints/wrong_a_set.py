# returns a set, which has no order: earns 0
import itertools


def choose_checkpoints(kept, inputs, flops, budget):
    best = None
    for n in range(len(kept) + 1):
        for chosen in itertools.combinations(range(len(kept)), n):
            held = most = 0
            for i, whole in enumerate(kept):
                most = max(most, held + whole if i in chosen else 0)
                held += inputs[i] if i in chosen else whole
            price = sum(flops[i] for i in chosen)
            if max(most, held) <= budget and (best is None or price < best[0]):
                best = price, set(chosen)
    if best is None:
        raise ValueError("none fits")
    return best[1]
