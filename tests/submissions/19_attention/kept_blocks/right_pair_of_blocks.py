# One block at a time, counting the pairs that it keeps.
def kept_blocks(rule, queries, keys, block):
    rows, columns = -(-queries // block), -(-keys // block)
    table = torch.zeros(rows, columns, dtype=torch.int64)
    for r in range(rows):
        i = torch.arange(r * block, min(queries, (r + 1) * block)).unsqueeze(1)
        for c in range(columns):
            j = torch.arange(c * block, min(keys, (c + 1) * block)).unsqueeze(0)
            shape = torch.broadcast_shapes(i.shape, j.shape)
            kept = int(torch.broadcast_to(rule(0, 0, i, j), shape).sum())
            table[r, c] = 2 if kept == shape.numel() else 1 if kept else 0
    return table
