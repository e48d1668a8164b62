# everything through rank 0: earns 0
def ring_all_reduce(x):
    n, rank = dist.get_world_size(), dist.get_rank()
    if rank:
        dist.send(x, 0)
        dist.recv(x, 0)
        return
    for r in range(1, n):
        got = torch.empty_like(x)
        dist.recv(got, r)
        x.add_(got)
    for r in range(1, n):
        dist.send(x, r)
