# calls fn: all values right, nothing saved: earns 0
def checkpointed(fn, *inputs):
    return fn(*inputs)
