# cuts off what does not divide by n: earns 0
class ShardedOptimizer:
    def __init__(self, params, make):
        self.params, self.n = list(params), dist.get_world_size()
        self.part = sum(p.numel() for p in self.params) // self.n
        own = self.end_to_end(self.params).chunk(self.n)[dist.get_rank()]
        self.own = nn.Parameter(own.clone())
        self.inner = make([self.own])

    @torch.no_grad()
    def end_to_end(self, tensors):
        vector = torch.cat([t.detach().flatten() for t in tensors])
        return nn.functional.pad(vector, (0, self.n * self.part - vector.numel()))

    @torch.no_grad()
    def back(self, vector):
        at = 0
        for p in self.params:
            p.copy_(vector[at : at + p.numel()].view_as(p))
            at += p.numel()

    @torch.no_grad()
    def step(self):
        vector = self.end_to_end([p.grad for p in self.params])
        grad = torch.empty(self.part)
        dist.reduce_scatter(grad, list(vector.chunk(self.n)))
        self.own.grad = grad / self.n
        self.inner.step()
        dist.all_gather(list(vector.chunk(self.n)), self.own.detach())
        self.back(vector)
