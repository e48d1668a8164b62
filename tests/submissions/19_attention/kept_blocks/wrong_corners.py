# judges a block by its four corners: earns 0
def kept_blocks(rule, queries, keys, block):
    table = []
    for start in range(0, queries, block):
        row = []
        for at in range(0, keys, block):
            i = torch.tensor([start, min(queries, start + block) - 1])[:, None]
            j = torch.tensor([at, min(keys, at + block) - 1])
            seen = rule(0, 0, i, j).expand(2, 2)
            row.append(int(seen.any()) + int(seen.all()))
        table.append(row)
    return torch.tensor(table)
