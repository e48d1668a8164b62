@torch.no_grad()
def smooth(norm, linears, amax, alpha=0.5):
    wmax = torch.stack([m.weight.abs().max(0).values for m in linears]).max(0).values
    s = torch.where((amax > 0) & (wmax > 0), amax.pow(alpha) * wmax.pow(alpha - 1), torch.ones_like(amax))
    for m in linears:
        m.weight *= s
    norm.weight /= s
    norm.bias /= s
