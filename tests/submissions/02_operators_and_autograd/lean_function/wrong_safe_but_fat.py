# overflow is dealt with, the bytes are not: earns 2
def tanhexp(x):
    return x * torch.tanh(torch.exp(x.clamp(max=20)))
