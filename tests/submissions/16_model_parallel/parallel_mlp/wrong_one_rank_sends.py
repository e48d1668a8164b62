# only rank 0 sums y, as if it were the only one to need it; the others wait for nobody, and it for ever: earns 0
class ParallelMLP(nn.Module):
    def __init__(self, first, second):
        super().__init__()
        n, rank = dist.get_world_size(), dist.get_rank()
        if first.out_features % n:
            raise ValueError("does not split")
        cut = lambda full, dim: nn.Parameter(full.detach().chunk(n, dim)[rank].clone())
        self.a, self.b = cut(first.weight, 0), cut(second.weight, 1)
        self.bias = None if first.bias is None else cut(first.bias, 0)
        self.out = None if second.bias is None else nn.Parameter(second.bias.detach().clone())

    def forward(self, x):
        y = F.linear(F.gelu(F.linear(x, self.a, self.bias)), self.b)
        if dist.get_rank() == 0:
            dist.all_reduce(y)
        return y if self.out is None else y + self.out
