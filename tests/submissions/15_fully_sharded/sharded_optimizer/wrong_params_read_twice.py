# goes through the parameters twice, and of a generator nothing is left: earns 2
class ShardedOptimizer:
    def __init__(self, params, make):
        self.n, rank = dist.get_world_size(), dist.get_rank()
        total = sum(p.numel() for p in params if p.requires_grad)
        self.part = -(-total // self.n)
        self.params = [p for p in params if p.requires_grad]
        flat = self._vector(self.params)
        self.mine = nn.Parameter(flat[rank * self.part : (rank + 1) * self.part].clone())
        self.optimizer = make([self.mine])

    def _vector(self, tensors):
        flat = torch.zeros(self.n * self.part)
        at = 0
        for p, t in zip(self.params, tensors, strict=True):
            if t is not None:
                flat[at : at + p.numel()] = t.detach().reshape(-1)
            at += p.numel()
        return flat

    @torch.no_grad()
    def step(self):
        flat = self._vector([p.grad for p in self.params])
        if self.mine.grad is None:
            self.mine.grad = torch.empty_like(self.mine)
        dist.reduce_scatter(self.mine.grad, list(flat.chunk(self.n)))
        self.mine.grad /= self.n
        self.optimizer.step()
        dist.all_gather(list(flat.chunk(self.n)), self.mine.detach())
        at = 0
        for p in self.params:
            p.copy_(flat[at : at + p.numel()].view(p.shape))
            at += p.numel()
