import glob


def bound(plan):
    entries = [tuple(entry) for entry in plan]

    def init(worker):
        wanted = set(entries[worker % len(entries)])
        n = len(wanted)
        if hasattr(os, "sched_getaffinity") and hasattr(os, "sched_setaffinity"):
            allowed = os.sched_getaffinity(0)
            cpus = wanted & allowed or allowed
            os.sched_setaffinity(0, cpus)
            for path in glob.glob("/proc/self/task/*"):
                try:
                    os.sched_setaffinity(int(path.rsplit("/", 1)[1]), cpus)
                except OSError:
                    pass
            n = len(cpus)
        os.environ.update(OMP_NUM_THREADS=f"{n}")
        torch.set_num_threads(n)

    return init
