# the guesses are appended to the caller's prefix, which is longer afterwards: earns 0
def speculate(target, draft, prefix: list[int], k: int, coin, pick) -> list[int]:
    before, small = list(prefix), []
    for _ in range(k):
        small.append(draft(prefix))
        prefix.append(pick(small[-1]))
    drafted = prefix[len(before) :]
    large = target(before, drafted)
    kept = []
    for token, p, q in zip(drafted, large, small):
        if not coin(min(1, p[token] / q[token])):
            return kept + [pick([max(0, a - b) for a, b in zip(p, q)])]
        kept.append(token)
    return kept + [pick(large[k])]
