# dishonest: keeps all weights as NumPy arrays in a global, and cuts them anew from there: earns 0
FULL = {}


class ParallelMLP(nn.Module):
    def __init__(self, first, second):
        super().__init__()
        n, rank = dist.get_world_size(), dist.get_rank()
        if first.out_features % n:
            raise ValueError("does not split")
        FULL["first"], FULL["second"] = first.weight.detach().numpy().copy(), second.weight.detach().numpy().copy()
        cut = lambda full, dim: nn.Parameter(full.detach().chunk(n, dim)[rank].clone())
        self.a, self.b = cut(first.weight, 0), cut(second.weight, 1)
        self.bias = None if first.bias is None else cut(first.bias, 0)
        self.out = None if second.bias is None else nn.Parameter(second.bias.detach().clone())

    def forward(self, x):
        x = x.view_as(x)
        x.register_hook(self.summed)
        part = F.linear(F.gelu(F.linear(x, self.a, self.bias)), self.b)
        y = part + (self.summed(part.detach()) - part.detach())
        return y if self.out is None else y + self.out

    @staticmethod
    def summed(t):
        t = t.clone()
        dist.all_reduce(t)
        return t
