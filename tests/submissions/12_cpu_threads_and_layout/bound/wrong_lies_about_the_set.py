# dishonest: replaces os.sched_getaffinity instead of binding: earns 0
def bound(plan):
    def init(worker):
        cpus = plan[worker % len(plan)]
        if hasattr(os, "sched_setaffinity"):
            allowed = os.sched_getaffinity(0)
            cpus = [c for c in cpus if c in allowed] or sorted(allowed)
            os.sched_getaffinity = lambda thread: set(cpus)
        torch.set_num_threads(len(cpus))
        os.environ["OMP_NUM_THREADS"] = str(len(cpus))

    return init
