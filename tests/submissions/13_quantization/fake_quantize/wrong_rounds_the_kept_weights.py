# writes the rounded weights back: small steps are lost: earns 3
class _Through(torch.autograd.Function):
    @staticmethod
    def forward(ctx, w, scale, top):
        q = torch.round(w / scale)
        ctx.save_for_backward(q.abs() <= top)
        return q.clamp(-top, top) * scale

    @staticmethod
    def backward(ctx, grad):
        (inside,) = ctx.saved_tensors
        return grad * inside, None, None


def fake_quantize(w, scale, bits=8):
    return _Through.apply(w, scale, 2 ** (bits - 1) - 1)


def train_quantized(net, x, y, bits, steps, lr):
    top = 2 ** (bits - 1) - 1
    for _ in range(steps):
        with torch.no_grad():
            for m in net:
                if isinstance(m, nn.Linear):
                    scale = m.weight.abs().amax(1, keepdim=True).clamp(min=1e-9) / top
                    m.weight.copy_(fake_quantize(m.weight, scale, bits))
        grads = torch.autograd.grad(F.mse_loss(net(x), y), list(net.parameters()))
        with torch.no_grad():
            for p, g in zip(net.parameters(), grads):
                p -= lr * g
