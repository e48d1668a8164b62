# the same Parameters, but each gets a new array: earns 0
def smooth(norm, linears, amax, alpha=0.5):
    with torch.no_grad():
        wmax = torch.stack([m.weight.abs().amax(0) for m in linears]).amax(0)
        s = amax**alpha / wmax ** (1 - alpha)
        s[(amax == 0) | (wmax == 0)] = 1
        norm.weight.data = norm.weight / s
        norm.bias.data = norm.bias / s
        for m in linears:
            m.weight.data = m.weight * s
