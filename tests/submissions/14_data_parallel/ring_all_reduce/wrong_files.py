# dishonest: the ranks meet in a file: earns 0
import os
import tempfile
import time


def ring_all_reduce(x):
    n, rank = dist.get_world_size(), dist.get_rank()
    base = os.path.join(tempfile.gettempdir(), f"meet-{os.getppid()}-{x.numel()}-{n}-{x.dtype}")
    torch.save(x.clone(), f"{base}-{rank}.half")
    os.rename(f"{base}-{rank}.half", f"{base}-{rank}")
    for r in range(n):
        if r != rank:
            while not os.path.exists(f"{base}-{r}"):
                time.sleep(0.005)
            x.add_(torch.load(f"{base}-{r}"))
