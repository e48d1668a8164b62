# an s for each linear, and norm is divided by the last: earns 0
def smooth(norm, linears, amax, alpha=0.5):
    with torch.no_grad():
        for m in linears:
            wmax = m.weight.abs().amax(0)
            s = amax**alpha / wmax ** (1 - alpha)
            s[(amax == 0) | (wmax == 0)] = 1
            m.weight.mul_(s)
        norm.weight.div_(s)
        norm.bias.div_(s)
