# asks the rule once for "any" and once for "all": earns 0
def kept_blocks(rule, queries, keys, block):
    table = []
    for i in torch.arange(queries)[:, None].split(block):
        row = []
        for j in torch.arange(keys).split(block):
            shape = len(i), len(j)
            row.append(int(rule(0, 0, i, j).expand(shape).any()) + int(rule(0, 0, i, j).expand(shape).all()))
        table.append(row)
    return torch.tensor(table)
