from torch.utils.checkpoint import checkpoint


def _written_out(x):
    return x * torch.tanh(torch.exp(x.clamp(max=20)))


def tanhexp(x):
    return checkpoint(_written_out, x, use_reentrant=False)
