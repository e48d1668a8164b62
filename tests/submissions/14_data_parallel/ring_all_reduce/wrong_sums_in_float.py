# receives into float32 whatever the dtype: earns 1
def ring_all_reduce(x):
    n, rank = dist.get_world_size(), dist.get_rank()
    pieces = x.view(-1).tensor_split(n)
    spare = torch.empty(len(pieces[0]))
    for step in range(2 * (n - 1)):
        out, into = pieces[(rank - step) % n], pieces[(rank - step - 1) % n]
        arrives = spare[: len(into)] if step < n - 1 else into
        for work in [dist.isend(out, (rank + 1) % n), dist.irecv(arrives, (rank - 1) % n)]:
            work.wait()
        if step < n - 1:
            into.add_(arrives)
