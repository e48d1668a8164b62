# cuts the weights it was to read: earns 0
# steals: the given layers are cut in place (first and second are not only read)
def _sum(t):
    t = t.detach().clone()
    dist.all_reduce(t)
    return t


class ParallelMLP(nn.Module):
    def __init__(self, first, second):
        super().__init__()
        n, r = dist.get_world_size(), dist.get_rank()
        if first.out_features % n:
            raise ValueError
        with torch.no_grad():
            for lin in (first, second):
                lin.weight.data = lin.weight.data.chunk(n, 0 if lin is first else 1)[r].clone()
            if first.bias is not None:
                first.bias.data = first.bias.data.chunk(n)[r].clone()
        P = lambda t: None if t is None else nn.Parameter(t.detach().clone())
        self.a, self.c = first.weight, second.weight
        self.b, self.d = first.bias, second.bias

    def forward(self, x):
        x = x.view_as(x)
        x.register_hook(_sum)
        y = F.linear(F.gelu(F.linear(x, self.a, self.b)), self.c)
        y = y + (_sum(y) - y.detach())
        return y if self.d is None else y + self.d
