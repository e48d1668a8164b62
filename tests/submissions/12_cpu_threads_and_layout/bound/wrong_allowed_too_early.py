# asks which CPUs are allowed when the plan is given, and not in the worker: earns 0
def bound(plan: list[list[int]]) -> Callable[[int], None]:
    can = hasattr(os, "sched_setaffinity") and hasattr(os, "sched_getaffinity")
    allowed = os.sched_getaffinity(0) if can else None
    sets = [set(entry) if allowed is None else (set(entry) & allowed) or allowed for entry in plan]

    def init(worker: int) -> None:
        cpus = sets[worker % len(sets)]
        if allowed is not None:
            for thread in os.listdir("/proc/self/task"):
                os.sched_setaffinity(int(thread), cpus)
        torch.set_num_threads(len(cpus))
        os.environ["OMP_NUM_THREADS"] = str(len(cpus))

    return init
