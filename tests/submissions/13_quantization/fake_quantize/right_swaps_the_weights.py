def fake_quantize(w, scale, bits=8):
    """torch.where for the mask, the value added without a gradient."""
    most = 2 ** (bits - 1) - 1
    with torch.no_grad():
        value = torch.round(w / scale).clamp(-most, most) * scale
        mask = w.abs() <= (most + 0.5) * scale
        rest = value - torch.where(mask, w, 0)
        del value
    return w.where(mask, 0) + rest


def train_quantized(net, x, y, bits, steps, lr):
    """Layers swap their weight for the rounded one during the forward, and get it back."""
    linears = [m for m in net.modules() if isinstance(m, torch.nn.Linear)]
    for _ in range(steps):
        net.zero_grad()
        kept = [layer.weight for layer in linears]
        for layer, w in zip(linears, kept):
            scale = w.detach().abs().amax(1, keepdim=True) / (2 ** (bits - 1) - 1)
            scale.masked_fill_(scale == 0, 1.0)
            bias = layer._parameters.pop("bias")
            del layer._parameters["weight"]
            layer.weight = fake_quantize(w, scale, bits)
            layer._parameters["bias"] = bias
        loss = F.mse_loss(net(x), y)
        for layer, w in zip(linears, kept):
            bias = layer._parameters.pop("bias")
            del layer.weight
            layer.weight = w
            layer._parameters["bias"] = bias
        loss.backward()
        with torch.no_grad():
            for p in net.parameters():
                p -= lr * p.grad
