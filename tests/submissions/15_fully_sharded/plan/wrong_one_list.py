# right, but every call returns the same list: earns 0
answer = []


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
    best = [-1, None]

    def go(chosen, kept):
        i = len(chosen)
        if kept + sum(blocks[i:]) <= best[0]:
            return
        if needed(blocks, chosen + [True] * (len(blocks) - i), n) > budget:
            return
        if i == len(blocks):
            best[:] = kept, chosen
            return
        go(chosen + [False], kept + blocks[i])
        go(chosen + [True], kept)

    go([], 0)
    if best[1] is None:
        raise ValueError("no plan fits")
    answer[:] = best[1]
    return answer
