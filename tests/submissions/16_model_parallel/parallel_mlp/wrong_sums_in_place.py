# summed_forward writes into y: earns 0
class _Forward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y):
        out = y.detach()
        dist.all_reduce(out)
        return out

    @staticmethod
    def backward(ctx, g):
        return g


class _Backward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        dist.all_reduce(g)
        return g


def summed_forward(y):
    return _Forward.apply(y)


def summed_backward(x):
    return _Backward.apply(x)


class ParallelMLP(nn.Module):
    def __init__(self, first, second):
        super().__init__()
        n, r = dist.get_world_size(), dist.get_rank()
        if first.out_features % n:
            raise ValueError("hidden")
        cut = lambda t, d: nn.Parameter(t.detach().chunk(n, d)[r].clone())
        self.w1, self.w2 = cut(first.weight, 0), cut(second.weight, 1)
        self.b1 = None if first.bias is None else cut(first.bias, 0)
        self.b2 = None if second.bias is None else nn.Parameter(second.bias.detach().clone())

    def forward(self, x):
        h = F.gelu(F.linear(summed_backward(x), self.w1, self.b1))
        y = summed_forward(F.linear(h, self.w2))
        return y if self.b2 is None else y + self.b2
