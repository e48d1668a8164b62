from itertools import chain, zip_longest


def one_f_one_b(stages, microbatches, most=None):
    if min(stages, microbatches) < 1 or (most is not None and most < 1):
        raise ValueError("all of them are at least 1")
    table = []
    for r in range(stages):
        n = min(filter(None, (stages - r, microbatches, most)))
        forwards = [f"{r}F{i}" for i in range(microbatches)]
        backwards = [f"{r}B{i}" for i in range(microbatches)]
        pairs = zip_longest(backwards, forwards[n:])
        table.append(forwards[:n] + [a for a in chain.from_iterable(pairs) if a])
    return table
