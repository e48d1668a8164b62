def speculate(target, draft, prefix, k, coin, pick):
    drafted, small = [], []
    for _ in range(k):
        small.append(draft(prefix + drafted))
        drafted.append(pick(small[-1]))
    large = target(prefix, drafted)
    for i, token in enumerate(drafted):
        if not coin(min(1, large[i][token] / small[i][token])):
            return drafted[:i] + [pick([max(0, p - q) for p, q in zip(large[i], small[i])])]
    return drafted + [pick(large[k])]
