def smooth(norm, linears, amax, alpha=0.5):
    """The maximum over rows in parts, with min and max; nan_to_num for what does not count."""
    with torch.inference_mode():
        low = torch.stack([m.weight.amin(0) for m in linears]).amin(0)
        high = torch.stack([m.weight.amax(0) for m in linears]).amax(0)
        wmax = torch.maximum(-low, high)
        s = amax.pow(alpha).div_(wmax.pow(1 - alpha))
        s = s.where((amax * wmax) > 0, torch.ones(()))
        for p in (norm.weight, norm.bias):
            p /= s
        for m in linears:
            m.weight *= s
