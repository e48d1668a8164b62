# the limit is ignored: earns 0
def one_f_one_b(stages, microbatches, most=None):
    if stages < 1 or microbatches < 1 or (most is not None and most < 1):
        raise ValueError("at least one of each")
    table = []
    for r in range(stages):
        ahead = min(stages - r, microbatches)
        row = [f"{r}F{i}" for i in range(ahead)]
        for i in range(microbatches):
            row.append(f"{r}B{i}")
            if ahead + i < microbatches:
                row.append(f"{r}F{ahead + i}")
        table.append(row)
    return table
