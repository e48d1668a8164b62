# tokens after a rejected one are looked at as well: earns 0

def speculate(target, draft, prefix, k, coin, pick):
    drafted, small = [], []
    for _ in range(k):
        small.append(draft(prefix + drafted))
        drafted.append(pick(small[-1]))
    large = target(prefix, drafted)
    for i, token in enumerate(drafted):
        if not coin(min(1, large[i][token] / small[i][token])):
            drafted = drafted[:i] + [pick([max(0, p - q) for p, q in zip(large[i], small[i])])] + drafted[i + 1 :]
    return drafted + [pick(large[k])]
