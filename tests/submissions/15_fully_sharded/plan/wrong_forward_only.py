# counts forward's needs only: earns 0
import itertools


def needed(blocks, gone):
    worst = kept = 0
    for i, b in enumerate(blocks):
        worst = max(worst, kept + 2 * b + (blocks[i - 1] if i else 0))
        kept += 0 if gone[i] else b
    return worst


def plan(blocks, n, budget):
    fits = [g for g in itertools.product([True, False], repeat=len(blocks)) if needed(blocks, g) <= budget]
    if not fits:
        raise ValueError("no plan fits")
    return list(max(fits, key=lambda g: sum(b for b, gone in zip(blocks, g) if not gone)))
