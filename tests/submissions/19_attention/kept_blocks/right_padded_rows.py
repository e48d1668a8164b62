# A row of blocks, padded to whole blocks twice: with False for "any", with True for "all".
def kept_blocks(rule, queries, keys, block):
    j, over = torch.arange(keys)[None], -keys % block
    rows = []
    for start in range(0, queries, block):
        i = torch.arange(start, min(start + block, queries))[:, None]
        seen = (rule(0, 0, i, j) | torch.zeros(len(i), keys, dtype=torch.bool))
        some = F.pad(seen, (0, over), value=False).unflatten(1, (-1, block)).any(2).any(0)
        whole = F.pad(seen, (0, over), value=True).unflatten(1, (-1, block)).all(2).all(0)
        rows.append(some.to(torch.int64) + whole)
    return torch.stack(rows)
