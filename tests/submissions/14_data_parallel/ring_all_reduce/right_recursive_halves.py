def ring_all_reduce(x):
    """Every piece goes its way by itself: first round and second as two generators of (what goes out, what comes in)."""
    n, me = dist.get_world_size(), dist.get_rank()
    edges = [x.numel() * i // n for i in range(n + 1)]
    flat = x.reshape(-1)

    def piece(i):
        return flat[edges[i % n] : edges[i % n + 1]]

    def pass_on(out, room):
        ask = dist.irecv(room, src=(me - 1) % n)
        dist.isend(out, dst=(me + 1) % n).wait()
        ask.wait()

    held = piece(me)
    for back in range(1, n):
        room = torch.empty_like(piece(me - back))
        pass_on(held, room)
        held = piece(me - back)
        held += room
    for back in range(n - 1):
        pass_on(held, room := torch.empty_like(piece(me - back)))
        held = piece(me - back)
        held[:] = room
