# forgets the numbers that do not fill a piece: earns 0
def ring_all_reduce(x):
    n, rank = dist.get_world_size(), dist.get_rank()
    size = x.numel() // n
    pieces = [x.view(-1)[i * size : (i + 1) * size] for i in range(n)]
    spare = torch.empty(size, dtype=x.dtype)
    for step in range(2 * (n - 1)):
        out, into = pieces[(rank - step) % n], pieces[(rank - step - 1) % n]
        arrives = spare if step < n - 1 else into
        for w in [dist.isend(out, (rank + 1) % n), dist.irecv(arrives, (rank - 1) % n)]:
            w.wait()
        if step < n - 1:
            into.add_(arrives)
