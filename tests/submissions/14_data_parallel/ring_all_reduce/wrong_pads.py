# fills up to a multiple of n, and sends the filling too: earns 0
def ring_all_reduce(x):
    n, rank = dist.get_world_size(), dist.get_rank()
    size = -(-x.numel() // n)
    flat = torch.zeros(size * n, dtype=x.dtype)
    flat[: x.numel()] = x.flatten()
    pieces = flat.split(size)
    spare = torch.empty_like(pieces[0])
    for step in range(2 * (n - 1)):
        out, into = pieces[(rank - step) % n], pieces[(rank - step - 1) % n]
        arrives = spare if step < n - 1 else into
        for w in [dist.isend(out, (rank + 1) % n), dist.irecv(arrives, (rank - 1) % n)]:
            w.wait()
        if step < n - 1:
            into.add_(arrives)
    x.copy_(flat[: x.numel()].view_as(x))
