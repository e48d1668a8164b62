import torch


def prepare(x):
    lo, span = x.amin(), x.amax() - x.amin()

    def y(x):
        z = (x - lo) / span
        return 2 * z * torch.sigmoid(z)

    return y(x) + y(torch.roll(x, -1, dims=1))
