# takes it that what is kept and the largest of the others are whole, no more: earns 0
import itertools


def plan(blocks, n, budget):
    best = None
    for gone in itertools.product([True, False], repeat=len(blocks)):
        kept = sum(b for b, g in zip(blocks, gone) if not g)
        if kept + max([b for b, g in zip(blocks, gone) if g], default=0) <= budget and (best is None or kept > best[0]):
            best = kept, list(gone)
    if best is None:
        raise ValueError("no plan fits")
    return best[1]
