# works with tensors of float32, in which a share like 1/3 is rounded: earns 0
def speculate(target, draft, prefix, k, coin, pick):
    small, tokens = [], list(prefix)
    for _ in range(k):
        small.append(torch.tensor([float(q) for q in draft(tokens)]))
        tokens = tokens + [pick(small[-1].tolist())]
    drafted = tokens[len(prefix) :]
    large = [torch.tensor([float(p) for p in row]) for row in target(prefix, drafted)]
    kept = []
    for token, p, q in zip(drafted, large, small):
        if p[token] < q[token] and not coin((p[token] / q[token]).item()):
            kept.append(pick((p - q).clamp(min=0).tolist()))
            return kept
        kept.append(token)
    kept.append(pick(large[-1].tolist()))
    return kept
