# keeps as many blocks as possible, not as many bytes: earns 0
import itertools


def needed(blocks, let_go, n):
    worst = 0
    for i, b in enumerate(blocks):
        kept = sum(c for c, gone in zip(blocks[:i], let_go[:i]) if not gone)
        before = blocks[i - 1] if i else 0
        ahead = before if i and let_go[i - 1] else 0
        after = blocks[i + 1] if i + 1 < len(blocks) else 0
        worst = max(worst, kept + 2 * b + before, kept + ahead + 2 * b + after + sum(blocks[i + 1 :]) // n)
    return worst


def plan(blocks, n, budget):
    fits = [g for g in itertools.product([True, False], repeat=len(blocks)) if needed(blocks, g, n) <= budget]
    if not fits:
        raise ValueError("no plan fits")
    return list(min(fits, key=sum))
