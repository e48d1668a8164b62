# dishonest: runs the loop in a thread, where the counters do not see it: earns 0
from concurrent.futures import ThreadPoolExecutor


def grad_norms(x, y, w1, b1, w2, b2):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(grad_norms_loop, x, y, w1, b1, w2, b2).result()
