# the part is a view, which keeps all n parts: with Adam's two 5 on three ranks, and 6 on four: earns 2
class ShardedOptimizer:
    def __init__(self, params, make):
        self.params, self.n = [p for p in params if p.requires_grad], dist.get_world_size()
        self.sizes = [p.numel() for p in self.params]
        self.part = -(-sum(self.sizes) // self.n)
        self.vector = self.end_to_end(self.params)
        self.own = nn.Parameter(self.vector.chunk(self.n)[dist.get_rank()])
        self.inner = make([self.own])

    @torch.no_grad()
    def end_to_end(self, tensors):
        vector = torch.cat([t.detach().flatten() for t in tensors])
        return nn.functional.pad(vector, (0, self.n * self.part - vector.numel()))

    @torch.no_grad()
    def step(self):
        grads = self.end_to_end([torch.zeros_like(p) if p.grad is None else p.grad for p in self.params])
        self.own.grad = torch.empty(self.part)
        dist.reduce_scatter_tensor(self.own.grad, grads)
        self.own.grad /= self.n
        self.inner.step()
        self.own.grad = None
        dist.all_gather_into_tensor(self.vector, self.own.detach().clone())
        for p, new in zip(self.params, self.vector[: sum(self.sizes)].split(self.sizes)):
            p.copy_(new.view_as(p))
