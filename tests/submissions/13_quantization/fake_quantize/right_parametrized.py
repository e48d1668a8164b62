from torch.func import functional_call


class _Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx, w, scale, top):
        ctx.save_for_backward((w.abs() > (top + 0.5) * scale))
        return torch.round(w / scale).clamp_(-top, top).mul_(scale)

    @staticmethod
    def backward(ctx, grad):
        return grad.masked_fill(ctx.saved_tensors[0], 0), None, None


def fake_quantize(w, scale, bits=8):
    return _Round.apply(w, scale, 2 ** (bits - 1) - 1)


def train_quantized(net, x, y, bits, steps, lr):
    top = 2 ** (bits - 1) - 1
    matrices = {f"{name}.weight" for name, m in net.named_modules() if isinstance(m, nn.Linear)}
    for _ in range(steps):
        stored = {}
        for name, p in net.named_parameters():
            if name in matrices:
                scale = p.detach().abs().amax(1, keepdim=True) / top
                scale[scale == 0] = 1
                stored[name] = fake_quantize(p, scale, bits)
            else:
                stored[name] = p
        net.zero_grad()
        F.mse_loss(functional_call(net, stored, (x,)), y).backward()
        with torch.no_grad():
            for p in net.parameters():
                p.add_(p.grad, alpha=-lr)
