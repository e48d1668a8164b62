from torch.utils.checkpoint import checkpoint


def _written_out(x):
    small = x.clamp(-1000, 20)  # below it is 0, above it is x: what comes into backward never meets a huge x
    return torch.where(x > 20, x, small * torch.tanh(torch.exp(small)))


def tanhexp(x):
    return checkpoint(_written_out, x, use_reentrant=False)
