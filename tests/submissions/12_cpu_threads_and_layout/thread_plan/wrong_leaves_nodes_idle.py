# the next worker to the node with most cores a worker: a small node may stay idle for nothing: earns 1
def thread_plan(cpus, allowed, workers):
    nodes = {}
    for cpu, core, node in sorted(cpus):
        if cpu in allowed:
            nodes.setdefault(node, {}).setdefault(core, []).append(cpu)
    cores = [s for by_core in nodes.values() for s in by_core.values()]
    if not cores or workers < 1:
        raise ValueError
    if workers > len(cores):
        raise ValueError
    by_node = [[s[0] for s in by_core.values()] for by_core in nodes.values()]
    seats = [0] * len(by_node)
    for _ in range(workers):
        i = max(range(len(seats)), key=lambda j: (len(by_node[j]) // (seats[j] + 1), not seats[j]))
        seats[i] += 1
    return [c[len(c) * i // k : len(c) * (i + 1) // k] for c, k in zip(by_node, seats) for i in range(k)]
