# workers go to nodes in turn, however large the nodes are: earns 0
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
    by_node = sorted(([s[0] for s in by_core.values()] for by_core in nodes.values()), key=len, reverse=True)
    seats = [0] * len(by_node)
    for i in range(workers):
        for j in range(len(by_node)):
            k = (i + j) % len(by_node)
            if seats[k] < len(by_node[k]):
                seats[k] += 1
                break
    return [c[len(c) * i // k : len(c) * (i + 1) // k] for c, k in zip(by_node, seats) for i in range(k)]
