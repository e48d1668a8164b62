# every worker gets the smallest share, what is left stays idle: earns 0
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
    share = max(s for s in range(1, len(cores) + 1) if sum(len(c) // s for c in by_node) >= workers)
    plan = [c[i : i + share] for c in by_node for i in range(0, len(c) - share + 1, share)]
    return plan[:workers]
