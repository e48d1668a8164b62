class ShardedOptimizer:
    def __init__(self, params, make):
        self.params, self.n = [p for p in params if p.requires_grad], dist.get_world_size()
        self.part = -(-sum(p.numel() for p in self.params) // self.n)
        own = self.end_to_end(self.params).chunk(self.n)[dist.get_rank()]
        self.own = nn.Parameter(own.clone())
        self.inner = make([self.own])

    @torch.no_grad()
    def end_to_end(self, tensors):
        vector = torch.hstack([t.detach().ravel() for t in tensors])
        return nn.functional.pad(vector, (0, self.n * self.part - vector.numel()))

    @torch.no_grad()
    def back(self, vector):
        at = 0
        for p in self.params:
            p.copy_(vector[at : at + p.numel()].view_as(p))
            at += p.numel()

    @torch.no_grad()
    def step(self):
        vector = self.end_to_end([torch.zeros_like(p) if p.grad is None else p.grad for p in self.params])
        grad = torch.empty(self.part)
        work = dist.reduce_scatter(grad, list((vector / self.n).chunk(self.n)), async_op=True)
        work.wait()
        self.own.grad = grad
        self.inner.step()
        dist.all_gather(list(vector.chunk(self.n)), self.own.detach())
        self.back(vector)
