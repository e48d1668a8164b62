class ShardedOptimizer:
    """Walks over places in the vector: which numbers of which parameter are rank r's."""

    def __init__(self, params, make):
        self.params = [p for p in params if p.requires_grad]
        self.n, self.rank = dist.get_world_size(), dist.get_rank()
        sizes = [p.numel() for p in self.params]
        self.starts = [sum(sizes[:i]) for i in range(len(sizes))]
        self.part = (sum(sizes) + self.n - 1) // self.n
        self.own = nn.Parameter(torch.zeros(self.part))
        with torch.no_grad():
            self.lay(self.params, lambda flat, place: place.copy_(flat), {self.rank: self.own})
        self.inner = make([self.own])

    def lay(self, tensors, act, parts):
        for start, t in zip(self.starts, tensors, strict=True):
            if t is None:
                continue
            flat = t.reshape(-1)
            for r, part in parts.items():
                low, high = max(start, r * self.part), min(start + flat.numel(), (r + 1) * self.part)
                if low < high:
                    act(flat[low - start : high - start], part[low - r * self.part : high - r * self.part])

    @torch.no_grad()
    def step(self):
        parts = {r: torch.zeros(self.part) for r in range(self.n)}
        self.lay([p.grad for p in self.params], lambda flat, place: place.copy_(flat), parts)
        mine = torch.zeros(self.part)
        dist.reduce_scatter(mine, list(parts.values()))
        self.own.grad = mine.mul_(1 / self.n)
        self.inner.step()
        dist.all_gather(list(parts.values()), self.own.detach())
        whole = torch.cat(list(parts.values()))
        for start, p in zip(self.starts, self.params, strict=True):
            p.copy_(whole[start : start + p.numel()].reshape(p.shape))
