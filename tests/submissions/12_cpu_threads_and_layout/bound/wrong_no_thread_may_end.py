# expects every listed thread to be there still when it is bound: earns 1
def bound(plan):
    def init(worker):
        cpus = plan[worker % len(plan)]
        if hasattr(os, "sched_setaffinity"):
            allowed = os.sched_getaffinity(0)
            cpus = [c for c in cpus if c in allowed] or sorted(allowed)
            for thread in os.listdir("/proc/self/task"):
                os.sched_setaffinity(int(thread), cpus)
        torch.set_num_threads(len(cpus))
        os.environ["OMP_NUM_THREADS"] = str(len(cpus))

    return init
