# keeps all where it is: equality without the saving: earns 0
from contextlib import nullcontext


def offloaded(parameters, put, get, min_bytes):
    return nullcontext()
