# the floors of 1e-5 of SmoothQuant's code give faint channels another s: earns 1
@torch.no_grad()
def smooth(
    norm: torch.nn.LayerNorm, linears: list[torch.nn.Linear], amax: torch.Tensor, alpha: float = 0.5
) -> None:
    wmax = torch.zeros_like(amax)
    for linear in linears:
        wmax = torch.maximum(wmax, linear.weight.abs().amax(0))
    s = (amax.pow(alpha) / wmax.clamp(min=1e-5).pow(1 - alpha)).clamp(min=1e-5)
    s = torch.where((amax == 0) | (wmax == 0), 1.0, s)
    norm.weight.div_(s)
    norm.bias.div_(s)
    for linear in linears:
        linear.weight.mul_(s)
