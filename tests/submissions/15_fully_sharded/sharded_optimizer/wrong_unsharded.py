# the right weights from an optimizer that is whole on every rank: earns 0
class ShardedOptimizer:
    def __init__(self, params, make):
        self.params, self.n = list(params), dist.get_world_size()
        self.inner = make(self.params)

    @torch.no_grad()
    def step(self):
        for p in self.params:
            dist.all_reduce(p.grad)
            p.grad /= self.n
        self.inner.step()
