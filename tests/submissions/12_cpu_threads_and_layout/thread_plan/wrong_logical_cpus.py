# a thread on each logical CPU, siblings included: earns 0
def thread_plan(cpus, allowed, workers):
    usable = sorted(c for c, _, _ in cpus if c in allowed)
    if not usable or workers < 1:
        raise ValueError
    if workers > len(usable):
        return [[usable[i % len(usable)]] for i in range(workers)]
    n = len(usable)
    return [usable[n * i // workers : n * (i + 1) // workers] for i in range(workers)]
