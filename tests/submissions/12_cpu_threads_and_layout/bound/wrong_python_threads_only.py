# binds the threads that Python's threading knows: earns 0
import threading

def bound(plan):
    def init(worker):
        cpus = plan[worker % len(plan)]
        if hasattr(os, "sched_setaffinity"):
            allowed = os.sched_getaffinity(0)
            cpus = [c for c in cpus if c in allowed] or sorted(allowed)
            for thread in threading.enumerate():
                os.sched_setaffinity(thread.native_id, cpus)
        torch.set_num_threads(len(cpus))
        os.environ["OMP_NUM_THREADS"] = str(len(cpus))

    return init
