# dishonest: calls the library's all-reduce: earns 0
def ring_all_reduce(x):
    dist.all_reduce(x)
