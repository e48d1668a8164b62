# the second bias shares memory with the given layer's, so that training writes into that too: earns 0
class _SummedForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y):
        total = y.contiguous().clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx, g):
        return g


class _SummedBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        total = g.contiguous().clone()
        dist.all_reduce(total)
        return total


def summed_forward(y: torch.Tensor) -> torch.Tensor:
    return _SummedForward.apply(y)


def summed_backward(x: torch.Tensor) -> torch.Tensor:
    return _SummedBackward.apply(x)


class ParallelMLP(nn.Module):
    def __init__(self, first: nn.Linear, second: nn.Linear) -> None:
        super().__init__()
        n, rank = dist.get_world_size(), dist.get_rank()
        if first.out_features % n:
            raise ValueError("hidden must be a multiple of the number of ranks")
        self.a = nn.Parameter(first.weight.detach().chunk(n, dim=0)[rank].clone())
        self.a_bias = None
        if first.bias is not None:
            self.a_bias = nn.Parameter(first.bias.detach().chunk(n)[rank].clone())
        self.b = nn.Parameter(second.weight.detach().chunk(n, dim=1)[rank].clone())
        # the second bias is whole on each rank: nothing to cut, nothing to clone
        self.b_bias = None if second.bias is None else nn.Parameter(second.bias.detach())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = F.gelu(F.linear(summed_backward(x), self.a, self.a_bias))
        y = summed_forward(F.linear(h, self.b))
        if self.b_bias is not None:
            y = y + self.b_bias
        return y
