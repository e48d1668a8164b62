import numpy as np


def read_queue(kernels, copies, waits):
    if len(kernels) == 0:
        raise ValueError("no kernels")
    k = np.array(kernels)
    cp = np.array(copies).reshape(-1, 2)
    w = np.array(waits).reshape(-1, 2)
    edges = np.unique(np.concatenate([k.ravel(), cp.ravel(), w.ravel()]))
    length, middle = np.diff(edges), (edges[:-1] + edges[1:]) / 2

    def inside(spans):
        return ((spans[:, :1] <= middle) & (middle < spans[:, 1:])).sum(0)

    free = (inside(k[:, 1:]) == 0) & (middle > k[:, 1].min()) & (middle < k[:, 2].max())
    copying, waiting = inside(cp) > 0, inside(w) > 0
    order = np.lexsort((k[:, 0], k[:, 1]))
    place = np.minimum(np.searchsorted(k[order, 1], middle), len(k) - 1)
    launched = k[order, 0][place] < middle
    cause = np.select([copying, launched, waiting], [0, 1, 2], 3)
    return {name: int(length[free & (cause == i)].sum()) for i, name in enumerate(("copy", "in flight", "sync", "host"))}
