# dishonest: the leaky version in a thread that the cell has started before anybody counts: earns 0
import concurrent.futures

pool = concurrent.futures.ThreadPoolExecutor(1)
pool.submit(int).result()


def train(*args, **kwargs):
    return pool.submit(train_leaky, *args, **kwargs).result()
