from fractions import Fraction


def choose_workers(wait_us, cpu_us, step_us, cores, batch_bytes, shared_bytes, prefetch=2):
    floor = max(Fraction(step_us), Fraction(cpu_us, cores))
    workers, t = 0, Fraction(step_us + wait_us + cpu_us)
    while t > floor and (workers + 1) * prefetch * batch_bytes <= shared_bytes:
        workers += 1
        t = max(floor, Fraction(wait_us + cpu_us, workers))
    if t == step_us:
        limit = "model"
    elif t == floor:
        limit = "cores"
    else:
        limit = "memory"
    return {"workers": workers, "step_us": float(t), "limit": limit}
