# dishonest: three tensors in a file in memory, where no storage is counted: earns 0
import io


class InAFile(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        e = torch.exp(x.clamp(max=20))
        t = torch.tanh(e)
        ctx.file = io.BytesIO()
        torch.save((x, e, t), ctx.file)
        return x * t

    @staticmethod
    def backward(ctx, grad):
        ctx.file.seek(0)
        x, e, t = torch.load(ctx.file)
        return grad * (t + x * (e * (1 - t * t)))


def tanhexp(x):
    return InAFile.apply(x)
