# views parameters as flat, which one that lies transposed is not: earns 2
class ShardedOptimizer:
    def __init__(self, params, make):
        self.params, self.n = [p for p in params if p.requires_grad], dist.get_world_size()
        self.sizes = [p.numel() for p in self.params]
        self.part = -(-sum(self.sizes) // self.n)
        self.sizes.append(self.n * self.part - sum(self.sizes))
        self.own = nn.Parameter(self.vector(self.params).chunk(self.n)[dist.get_rank()].clone())
        self.inner = make([self.own])

    @torch.no_grad()
    def vector(self, tensors):
        v = torch.zeros(self.n * self.part)
        for place, t in zip(v.split(self.sizes), tensors, strict=False):
            if t is not None:
                place.copy_(t.view(-1))
        return v

    @torch.no_grad()
    def step(self):
        v = self.vector([p.grad for p in self.params])
        self.own.grad = torch.empty(self.part)
        dist.reduce_scatter(self.own.grad, list(v.chunk(self.n)))
        self.own.grad /= self.n
        self.inner.step()
        dist.all_gather(list(v.chunk(self.n)), self.own.detach())
        for p, new in zip(self.params, v.split(self.sizes), strict=False):
            p.view(-1).copy_(new)
