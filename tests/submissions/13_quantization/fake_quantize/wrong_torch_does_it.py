# torch.fake_quantize_per_channel_affine: the library has it already: earns 0
def fake_quantize(w, scale, bits=8):
    top = 2 ** (bits - 1) - 1
    scale = scale.to(w.dtype)
    if scale.numel() == 1:
        return torch.fake_quantize_per_tensor_affine(w, scale, torch.zeros((), dtype=torch.int32), -top, top)
    axis = max(range(w.dim()), key=lambda d: scale.shape[d])
    zero = torch.zeros(scale.numel(), dtype=torch.int32)
    return torch.fake_quantize_per_channel_affine(w.float(), scale.flatten().float(), zero, axis, -top, top).to(w.dtype)


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
