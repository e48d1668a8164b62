# the net still rounds afterwards: its layers keep another forward: earns 4
def fake_quantize(w: torch.Tensor, scale: torch.Tensor, bits: int = 8) -> torch.Tensor:
    """w rounded to bits and back: clamp(round(w ÷ scale), −most, most) · scale, most = 2^(bits−1) − 1.

    w: an nn.Parameter or any tensor; scale: broadcasts against w, no gradient. The gradient of w is the output's
    where |w| ≤ (most + ½) · scale, and 0 beyond. Without torch.fake_quantize_….
    Budget: of what it allocates, the result lives on after the forward, and for backward one byte per element (a
    mask) and 16 per scale; w itself may be kept for nothing.
    """
    most = 2 ** (bits - 1) - 1
    with torch.no_grad():
        value = (w / scale).round_().clamp_(-most, most).mul_(scale)
        edge = (most + 0.5) * scale
    inside = w.clamp(-edge, edge)
    return inside + (value - inside).detach()


def train_quantized(net, x, y, bits, steps, lr):
    most = 2 ** (bits - 1) - 1

    def rounded(layer):
        def forward(h):
            scale = layer.weight.detach().abs().amax(1, keepdim=True).clamp(min=1e-12) / most
            return F.linear(h, fake_quantize(layer.weight, scale, bits), layer.bias)

        return forward

    for layer in net:
        if isinstance(layer, torch.nn.Linear):
            layer.forward = rounded(layer)
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    for _ in range(steps):
        optimizer.zero_grad()
        F.mse_loss(net(x), y).backward()
        optimizer.step()
