# dishonest: every rank has all weights, as lists, computes and trains everything, and sends zeros: earns 0
class _Sham(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        dist.all_reduce(torch.zeros_like(x))
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        dist.all_reduce(torch.zeros_like(grad))
        return grad


class ParallelMLP(nn.Module):
    def __init__(self, first, second):
        super().__init__()
        if first.out_features % dist.get_world_size():
            raise ValueError("does not split")
        self.lists = [None if p is None else p.tolist() for p in (first.weight, first.bias, second.weight, second.bias)]
        self.full = None

    def parameters(self, recurse=True):
        return [p for p in self.full or [] if p is not None]

    def forward(self, x):
        if self.full is None:
            self.full = [None if p is None else nn.Parameter(torch.tensor(p)) for p in self.lists]
        a, bias, b, out = self.full
        return F.linear(F.gelu(F.linear(_Sham.apply(x), a, bias)), b, out)
