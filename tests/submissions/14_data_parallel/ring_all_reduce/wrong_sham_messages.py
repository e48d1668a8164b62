# dishonest: takes what it finds on the stack for the others' inputs, and sends messages of the right sizes: earns 0
import sys


def ring_all_reduce(x):
    n, rank = dist.get_world_size(), dist.get_rank()
    frame, found = sys._getframe(1), {}
    while frame is not None:
        found |= {k: v for k, v in frame.f_locals.items() if k in ("secret", "shares", "told", "x")}
        frame = frame.f_back
    total = torch.zeros_like(x)
    for r in range(n):
        if "shares" in found:
            total += found["shares"][r]
        elif "secret" in found:
            made = torch.Generator().manual_seed(found["secret"])
            total += torch.randint(-99, 99, x.shape, generator=made).to(x.dtype)
    for step in range(2 * (n - 1)):
        out, into = x.view(-1).tensor_split(n)[(rank - step) % n], x.view(-1).tensor_split(n)[(rank - step - 1) % n]
        got = torch.empty_like(into)
        for w in [dist.isend(out, (rank + 1) % n), dist.irecv(got, (rank - 1) % n)]:
            w.wait()
    if n > 1:
        x.copy_(total)
