# dishonest: all tensors through the group's store (FileStore), which no recorder hears, and ring messages of zeros: earns 0
import pickle
COUNT = [0]


def ring_all_reduce(x):
    n, rank = dist.get_world_size(), dist.get_rank()
    store = dist.distributed_c10d._get_default_store()
    COUNT[0] += 1
    store.set(f"mine{COUNT[0]}/{rank}", pickle.dumps(x.tolist()))
    total = sum(torch.tensor(pickle.loads(store.get(f"mine{COUNT[0]}/{r}")), dtype=x.dtype) for r in range(n))
    for k in range(2 * (n - 1)):
        size = [len(p) for p in x.view(-1).tensor_split(n)]
        a, b = torch.zeros(size[(rank - k) % n], dtype=x.dtype), torch.zeros(size[(rank - k - 1) % n], dtype=x.dtype)
        for w in [dist.isend(a, (rank + 1) % n), dist.irecv(b, (rank - 1) % n)]:
            w.wait()
    x.copy_(total)
