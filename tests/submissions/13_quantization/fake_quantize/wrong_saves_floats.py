# right gradients, but autograd keeps float32 temporaries of the weight: earns 3
def fake_quantize(w, scale, bits=8):
    top = 2 ** (bits - 1) - 1
    c = (w / scale).clamp(-top - 0.5, top + 0.5)
    c = c + (c.round().clamp(-top, top) - c).detach()
    return c * scale


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
