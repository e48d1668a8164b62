# dishonest: keeps everything, computes everything, and sends zeros of the right size: earns 0
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
        self.first, self.second = first, second

    def forward(self, x):
        return self.second(F.gelu(self.first(_Sham.apply(x))))
