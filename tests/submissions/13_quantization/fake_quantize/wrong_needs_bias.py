# a Linear without a bias fails: earns 4
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


def train_quantized(
    net: torch.nn.Sequential, x: torch.Tensor, y: torch.Tensor, bits: int, steps: int, lr: float
) -> None:
    """Train net (Linear layers and others), in place, so that it does well with its weights rounded.

    Each step: forward over all of x with every Linear's weight through fake_quantize, one scale per output row,
    largest |w| of the row ÷ most, from the weights as they are at this step; biases (which may be None) and other
    layers, such as a LayerNorm with parameters, as they are. Loss: F.mse_loss(output, y). Step: every parameter p −= lr · gradient of this step alone. Weights stay exact
    (float) in net, which is plain again afterwards; its .grad is None before and may be anything afterwards. A row of zeros stays finite. No syncs (.item() and the like).
    """
    most = 2 ** (bits - 1) - 1
    parameters = list(net.parameters())
    for _ in range(steps):
        h = x
        for layer in net:
            if isinstance(layer, torch.nn.Linear):
                scale = layer.weight.detach().abs().amax(1, keepdim=True).clamp(min=1e-12) / most
                h = h @ fake_quantize(layer.weight, scale, bits).t() + layer.bias
            else:
                h = layer(h)
        grads = torch.autograd.grad(F.mse_loss(h, y), parameters)
        with torch.no_grad():
            for p, grad in zip(parameters, grads, strict=True):
                p.sub_(lr * grad)
