# the gradient of round is 0: nothing is learned: earns 0
def fake_quantize(w, scale, bits=8):
    top = 2 ** (bits - 1) - 1
    return torch.round(w / scale).clamp(-top, top) * scale


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
