def one_f_one_b(stages, microbatches, most=None):
    if stages < 1 or microbatches < 1 or (most is not None and most <= 0):
        raise ValueError(f"stages={stages}, microbatches={microbatches}, most={most}")

    def row(r):
        limit = stages - r if most is None else min(most, stages - r)
        forward = backward = 0
        while backward < microbatches:
            if forward < microbatches and forward - backward < limit:
                yield f"{r}F{forward}"
                forward += 1
            else:
                yield f"{r}B{backward}"
                backward += 1

    return [list(row(r)) for r in range(stages)]
