# what n does not divide, N mod n numbers, is kept on every rank: earns 2
class ShardedOptimizer:
    def __init__(self, params, make):
        self.params, self.n = [p for p in params if p.requires_grad], dist.get_world_size()
        self.sizes = [p.numel() for p in self.params]
        self.even, self.rest = divmod(sum(self.sizes), self.n)
        self.own = nn.Parameter(self.laid(self.params)[dist.get_rank()].clone())
        self.inner = make([self.own])

    @torch.no_grad()
    def laid(self, tensors):
        """A row a rank: its share, and the numbers that are left over."""
        vector = torch.cat([t.detach().flatten() for t in tensors])
        shares, left = vector[: self.n * self.even].view(self.n, -1), vector[self.n * self.even :]
        return torch.cat([shares, left.expand(self.n, self.rest)], 1)

    @torch.no_grad()
    def step(self):
        rows = self.laid([torch.zeros_like(p) if p.grad is None else p.grad for p in self.params])
        grad = torch.empty(self.even + self.rest)
        dist.reduce_scatter(grad, list(rows))
        self.own.grad = grad / self.n
        self.inner.step()
        dist.all_gather(list(rows), self.own.detach())
        vector = torch.cat([rows[:, : self.even].flatten(), rows[0, self.even :]])
        for p, new in zip(self.params, vector.split(self.sizes)):
            p.copy_(new.view_as(p))
