import contextlib

import psutil


class bound:
    def __init__(self, plan):
        self.plan = plan

    def __call__(self, worker):
        entry = self.plan[worker % len(self.plan)]
        if getattr(os, "sched_setaffinity", None) is None:
            cpus = entry
        else:
            may = os.sched_getaffinity(0)
            cpus = [c for c in entry if c in may]
            if not cpus:
                cpus = sorted(may)
            for thread in psutil.Process().threads():
                with contextlib.suppress(ProcessLookupError):
                    os.sched_setaffinity(thread.id, cpus)
        torch.set_num_threads(len(cpus))
        os.environ["OMP_NUM_THREADS"] = str(len(cpus))
