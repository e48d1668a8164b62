# sums into one tensor, which the next call fills anew: earns 0
class Summed(torch.autograd.Function):
    rooms = {}

    @staticmethod
    def forward(ctx, y):
        room = Summed.rooms.setdefault(y.shape, torch.empty(y.shape)).copy_(y)
        dist.all_reduce(room)
        return room.detach()

    @staticmethod
    def backward(ctx, grad):
        return grad


class Shared(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad)
        return grad


def summed_forward(y):
    return Summed.apply(y)


def summed_backward(x):
    return Shared.apply(x)


class ParallelMLP(nn.Module):
    def __init__(self, first, second):
        super().__init__()
        n, rank = dist.get_world_size(), dist.get_rank()
        if first.out_features % n:
            raise ValueError("the hidden units do not split")
        part = lambda whole, dim: nn.Parameter(whole.detach().chunk(n, dim)[rank].clone())
        self.first, self.second = part(first.weight, 0), part(second.weight, 1)
        self.first_bias = None if first.bias is None else part(first.bias, 0)
        self.second_bias = None if second.bias is None else nn.Parameter(second.bias.detach().clone())

    def forward(self, x):
        y = summed_forward(F.linear(F.gelu(F.linear(summed_backward(x), self.first, self.first_bias)), self.second))
        return y if self.second_bias is None else y + self.second_bias
