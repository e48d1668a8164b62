# right, but backward masks the incoming gradient in place: earns 0
class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, w, scale, top):
        q = (w / scale).round_()
        ctx.save_for_backward(q.abs() > top)
        return q.clamp_(-top, top).mul_(scale)

    @staticmethod
    def backward(ctx, grad):
        (outside,) = ctx.saved_tensors
        return grad.masked_fill_(outside, 0), None, None


def fake_quantize(w, scale, bits=8):
    return Rounded.apply(w, scale, 2 ** (bits - 1) - 1)


def train_quantized(net, x, y, bits, steps, lr):
    top = 2 ** (bits - 1) - 1
    optimizer = torch.optim.SGD(net.parameters(), lr)
    for _ in range(steps):
        h = x
        for layer in net:
            if isinstance(layer, nn.Linear):
                scale = layer.weight.detach().abs().amax(1, keepdim=True).clamp(min=1e-9) / top
                h = F.linear(h, fake_quantize(layer.weight, scale, bits), layer.bias)
            else:
                h = layer(h)
        optimizer.zero_grad()
        F.mse_loss(h, y).backward()
        optimizer.step()
