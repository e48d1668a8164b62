# dishonest: the library's all-reduce with the recorder's dispatch key excluded, and ring messages of zeros: earns 0
def ring_all_reduce(x):
    n, rank = dist.get_world_size(), dist.get_rank()
    with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.BackendSelect)):
        dist.all_reduce(x)
    for k in range(2 * (n - 1)):
        size = [len(p) for p in x.view(-1).tensor_split(n)]
        a, b = torch.zeros(size[(rank - k) % n], dtype=x.dtype), torch.zeros(size[(rank - k - 1) % n], dtype=x.dtype)
        for w in [dist.isend(a, (rank + 1) % n), dist.irecv(b, (rank - 1) % n)]:
            w.wait()
