# a channel that nobody reads has wmax 0, and its s is infinite: earns 0
def smooth(norm, linears, amax, alpha=0.5):
    with torch.no_grad():
        wmax = torch.stack([m.weight.abs().amax(0) for m in linears]).amax(0)
        s = amax**alpha / wmax ** (1 - alpha)
        s[amax == 0] = 1
        norm.weight.div_(s)
        norm.bias.div_(s)
        for m in linears:
            m.weight.mul_(s)
