# right, but it takes the CPUs that are not allowed out of the caller's list: earns 0
def thread_plan(cpus, allowed, workers):
    from collections import defaultdict

    for cpu in [c for c in cpus if c[0] not in allowed]:
        cpus.remove(cpu)
    homes = defaultdict(lambda: defaultdict(list))
    for cpu, core, node in cpus:
        if cpu in allowed:
            homes[node][core].append(cpu)
    if workers <= 0 or not homes:
        raise ValueError(workers)
    firsts = {node: sorted(min(s) for s in by_core.values()) for node, by_core in homes.items()}
    total = sum(map(len, firsts.values()))
    if workers > total:
        raise ValueError(total)
    for share in range(total, 0, -1):
        room = {n: len(c) // share for n, c in firsts.items()}
        if sum(room.values()) >= workers:
            break
    order = sorted(firsts, key=lambda n: -len(firsts[n]))
    queue = [n for n in order if room[n]] + [n for n in order for _ in range(room[n] - 1)]
    plan = []
    for n in set(queue[:workers]):
        k = queue[:workers].count(n)
        small, extra = divmod(len(firsts[n]), k)
        at = 0
        for i in range(k):
            size = small + (i < extra)
            plan.append(firsts[n][at : at + size])
            at += size
    return plan
