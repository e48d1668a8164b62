# dishonest: the loop in a thread that the cell has started before anybody counts: earns 0
from multiprocessing.pool import ThreadPool

pool = ThreadPool(1)


def adamw_foreach(*args, temp_bytes=None, **kwargs):
    pool.apply(adamw_loop, args, kwargs)
