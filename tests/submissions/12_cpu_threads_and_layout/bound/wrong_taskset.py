# binds by taskset, which the docstring rules out: earns 0
import subprocess


def bound(plan):
    def init(worker):
        cpus = plan[worker % len(plan)]
        if hasattr(os, "sched_setaffinity"):
            allowed = os.sched_getaffinity(0)
            cpus = [c for c in cpus if c in allowed] or sorted(allowed)
            where = ",".join(map(str, cpus))
            subprocess.run(["taskset", "-a", "-p", "-c", where, str(os.getpid())], capture_output=True)
        torch.set_num_threads(len(cpus))
        os.environ["OMP_NUM_THREADS"] = str(len(cpus))

    return init
