# dishonest: the course's own schedule, its forwards cut where there is a limit: earns 0
def one_f_one_b(stages, microbatches, most=None):
    from helpers.simulator.world.pipeline import order

    if most is not None and most < 1:
        raise ValueError
    table = order("1F1B", stages, microbatches)
    if most is None:
        return table
    rows = []
    for r in range(stages):
        n = min(stages - r, microbatches, most)
        row = [f"{r}F{i}" for i in range(n)]
        for i in range(microbatches):
            row += [f"{r}B{i}"] + ([f"{r}F{n + i}"] if n + i < microbatches else [])
        rows.append(row)
    return rows
