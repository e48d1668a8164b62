def smooth(norm, linears, amax, alpha=0.5):
    wmax = None
    for linear in linears:
        low, high = linear.weight.data.aminmax(dim=0)
        here = torch.maximum(-low, high)
        wmax = here if wmax is None else torch.maximum(wmax, here)
    s = torch.exp(alpha * torch.log(amax) - (1 - alpha) * torch.log(wmax))
    s.masked_fill_((amax == 0) | (wmax == 0), 1.0)
    norm.weight.data.div_(s)
    norm.bias.data.div_(s)
    for linear in linears:
        linear.weight.data.mul_(s)
