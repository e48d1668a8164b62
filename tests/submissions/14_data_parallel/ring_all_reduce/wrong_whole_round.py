# the whole tensor goes round the ring, n − 1 times: earns 0
def ring_all_reduce(x):
    n, rank = dist.get_world_size(), dist.get_rank()
    out = x.clone()
    for _ in range(n - 1):
        got = torch.empty_like(x)
        works = [dist.isend(out, (rank + 1) % n), dist.irecv(got, (rank - 1) % n)]
        for w in works:
            w.wait()
        x.add_(got)
        out = got
