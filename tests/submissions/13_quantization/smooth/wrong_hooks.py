# divides and multiplies at run time, in hooks: earns 0
def smooth(norm, linears, amax, alpha=0.5):
    with torch.no_grad():
        wmax = torch.stack([m.weight.abs().amax(0) for m in linears]).amax(0)
        s = amax**alpha / wmax ** (1 - alpha)
        s[(amax == 0) | (wmax == 0)] = 1
        norm.register_forward_hook(lambda m, args, y: y / s)
        for m in linears:
            m.weight.mul_(s)
