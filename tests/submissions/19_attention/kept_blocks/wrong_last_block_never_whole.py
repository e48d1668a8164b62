# counts kept pairs against block · block, also where a block is smaller: earns 1
def kept_blocks(rule, queries, keys, block):
    j, table = torch.arange(keys), []
    for i in torch.arange(queries)[:, None].split(block):
        seen = rule(0, 0, i, j).expand(len(i), keys)
        sums = torch.stack([p.sum() for p in seen.split(block, 1)])
        table.append((sums > 0).long() + (sums == block * block).long())
    return torch.stack(table)
