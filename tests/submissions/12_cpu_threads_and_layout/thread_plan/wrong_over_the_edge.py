# equal shares of all cores, whatever their node: earns 0
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
    firsts = [s[0] for s in cores]
    n = len(firsts)
    return [firsts[n * i // workers : n * (i + 1) // workers] for i in range(workers)]
