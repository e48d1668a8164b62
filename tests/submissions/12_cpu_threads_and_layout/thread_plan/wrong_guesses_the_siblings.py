# takes the first half of the CPU numbers for the cores and the second for their siblings: earns 0
def thread_plan(cpus, allowed, workers):
    cores = len({core for _, core, _ in cpus})
    candidates = [c for c in sorted(cpus) if c[0] % cores == c[0] or c[0] - cores not in allowed]
    by_node, seen = {}, set()
    for cpu, core, node in candidates:
        if cpu in allowed and cpu % cores not in seen:
            seen.add(cpu % cores)
            by_node.setdefault(node, []).append(cpu)
    by_node = [sorted(c) for c in by_node.values()]
    if not 1 <= workers <= sum(map(len, by_node)):
        raise ValueError
    seats = [0] * len(by_node)
    share = max(s for s in range(1, 99) if sum(len(c) // s for c in by_node) >= workers)
    for _ in range(workers):
        able = [j for j in range(len(seats)) if len(by_node[j]) // (seats[j] + 1) >= share]
        seats[max(able, key=lambda j: (not seats[j], len(by_node[j]) / (seats[j] + 1)))] += 1
    return [c[len(c) * i // k : len(c) * (i + 1) // k] for c, k in zip(by_node, seats) for i in range(k)]
