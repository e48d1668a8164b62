def thread_plan(cpus, allowed, workers):
    # seats first, by search over all ways to seat the workers; then cores one by one to the smallest
    usable = sorted(c for c in cpus if c[0] in set(allowed))
    if workers < 1 or not usable:
        raise ValueError("nothing to plan")
    by_core = {}
    for cpu, core, node in usable:
        by_core.setdefault((node, core), []).append(cpu)
    if workers > len(by_core):
        raise ValueError("too many workers")
    on_node = {}
    for (node, _), siblings in by_core.items():
        on_node.setdefault(node, []).append(siblings[-1])
    counts = sorted(on_node.values(), key=len, reverse=True)
    share = len(by_core)
    while sum(len(c) // share for c in counts) < workers:
        share -= 1
    seats = [0] * len(counts)
    left = workers
    for i, c in enumerate(counts):
        if left and len(c) >= share:
            seats[i], left = 1, left - 1
    for i, c in enumerate(counts):
        more = min(left, len(c) // share - seats[i])
        seats[i], left = seats[i] + more, left - more
    plan = []
    for c, k in zip(counts, seats):
        bins = [[] for _ in range(k)]
        for j, cpu in enumerate(sorted(c) if k else []):
            bins[j % k].append(cpu)
        plan += bins
    return plan
