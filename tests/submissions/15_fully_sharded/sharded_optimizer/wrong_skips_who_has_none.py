# a parameter without a gradient on this rank is left out here, and not on the others: earns 2
class ShardedOptimizer:
    def __init__(self, params, make):
        self.params, self.n = [p for p in params if p.requires_grad], dist.get_world_size()
        self.part = -(-sum(p.numel() for p in self.params) // self.n)
        own = self.end_to_end(self.params).chunk(self.n)[dist.get_rank()]
        self.inner = make([nn.Parameter(own.clone())])

    @torch.no_grad()
    def end_to_end(self, tensors):
        vector = torch.cat([t.detach().reshape(-1) for t in tensors])
        return nn.functional.pad(vector, (0, self.n * self.part - vector.numel()))

    @torch.no_grad()
    def step(self):
        own = self.inner.param_groups[0]["params"][0]
        used = [p for p in self.params if p.grad is not None]
        vector = self.end_to_end([p.grad for p in used])
        grad = torch.empty(self.part)
        dist.reduce_scatter_tensor(grad, vector)
        own.grad = grad / self.n
        self.inner.step()
        dist.all_gather_into_tensor(vector, own.detach())
        for p, new in zip(self.params, vector.split([p.numel() for p in self.params] + [vector.numel() - sum(p.numel() for p in self.params)])):
            p.copy_(new.view(p.shape))
