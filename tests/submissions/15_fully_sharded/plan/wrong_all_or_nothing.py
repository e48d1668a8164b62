# keeps all if all fit, else nothing: earns 0
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
    for gone in (False, True):
        if needed(blocks, [gone] * len(blocks), n) <= budget:
            return [gone] * len(blocks)
    raise ValueError("no plan fits")
