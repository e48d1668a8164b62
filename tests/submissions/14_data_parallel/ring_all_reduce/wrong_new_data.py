# gives x another storage; the tensor that x was a part of still has this rank's numbers: earns 0
def ring_all_reduce(x):
    n, rank = dist.get_world_size(), dist.get_rank()
    pieces = [p.clone() for p in x.view(-1).tensor_split(n)]
    for step in range(2 * (n - 1)):
        out, into = pieces[(rank - step) % n], pieces[(rank - step - 1) % n]
        got = torch.empty_like(into)
        for work in [dist.isend(out, (rank + 1) % n), dist.irecv(got, (rank - 1) % n)]:
            work.wait()
        into.copy_(into + got if step < n - 1 else got)
    x.data = torch.cat(pieces).view(x.shape)
