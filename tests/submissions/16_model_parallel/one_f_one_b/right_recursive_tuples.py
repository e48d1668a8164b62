# right: recursive, tuples of tuples
def one_f_one_b(stages, microbatches, most=None):
    if stages < 1 or microbatches < 1 or (most is not None and most < 1):
        raise ValueError("at least 1")

    def grow(rank, done_f, done_b, cap):
        if done_b == microbatches:
            return ()
        if done_f < microbatches and done_f - done_b < cap:
            return (f"{rank}F{done_f}", *grow(rank, done_f + 1, done_b, cap))
        return (f"{rank}B{done_b}", *grow(rank, done_f, done_b + 1, cap))

    return tuple(grow(r, 0, 0, min(stages - r, most or microbatches)) for r in range(stages))
