# takes the likeliest token of the small model: right shares, fewer tokens kept: earns 0

def speculate(target, draft, prefix, k, coin, pick):
    drafted = []
    for _ in range(k):
        small = draft(prefix + drafted)
        drafted.append(small.index(max(small)))
    large = target(prefix, drafted)
    for i, token in enumerate(drafted):
        if not coin(large[i][token]):
            return drafted[:i] + [pick([0 if n == token else p for n, p in enumerate(large[i])])]
    return drafted + [pick(large[k])]
