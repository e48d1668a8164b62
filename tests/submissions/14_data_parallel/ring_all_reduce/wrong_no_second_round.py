# a reduce-scatter: each rank has one piece of the sum: earns 0
def ring_all_reduce(x):
    n, rank = dist.get_world_size(), dist.get_rank()
    pieces = x.view(-1).tensor_split(n)
    spare = torch.empty_like(pieces[0])
    for step in range(n - 1):
        out, into = pieces[(rank - step) % n], pieces[(rank - step - 1) % n]
        for w in [dist.isend(out, (rank + 1) % n), dist.irecv(spare[: len(into)], (rank - 1) % n)]:
            w.wait()
        into.add_(spare[: len(into)])
