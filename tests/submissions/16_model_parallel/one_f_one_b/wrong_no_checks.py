# takes 0 micro-batches, and a limit of 0 for none: earns 0
def one_f_one_b(stages, microbatches, most=None):
    table = []
    for r in range(stages):
        ahead = min(stages - r, microbatches, most or microbatches)
        row = [f"{r}F{i}" for i in range(ahead)]
        for i in range(microbatches):
            row.append(f"{r}B{i}")
            if ahead + i < microbatches:
                row.append(f"{r}F{ahead + i}")
        table.append(row)
    return table
