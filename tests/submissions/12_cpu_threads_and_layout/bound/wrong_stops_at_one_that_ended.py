# the try stands around the loop: once a thread has ended, those after it stay unbound: earns 1
def bound(plan):
    def init(worker):
        cpus = plan[worker % len(plan)]
        if hasattr(os, "sched_setaffinity"):
            allowed = os.sched_getaffinity(0)
            cpus = [c for c in cpus if c in allowed] or sorted(allowed)
            try:
                for thread in os.listdir("/proc/self/task"):
                    os.sched_setaffinity(int(thread), cpus)
            except ProcessLookupError:
                pass
        torch.set_num_threads(len(cpus))
        os.environ["OMP_NUM_THREADS"] = str(len(cpus))

    return init
