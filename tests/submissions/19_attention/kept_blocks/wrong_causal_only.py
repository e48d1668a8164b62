# never asks below the diagonal, as if every rule were causal: earns 1
def kept_blocks(rule, queries, keys, block):
    table = torch.zeros(-(-queries // block), -(-keys // block), dtype=torch.int64)
    for r, i in enumerate(torch.arange(queries)[:, None].split(block)):
        for c, j in enumerate(torch.arange(keys).split(block)):
            if c <= r:
                seen = rule(0, 0, i, j).expand(len(i), len(j))
                table[r, c] = int(seen.any()) + int(seen.all())
    return table
