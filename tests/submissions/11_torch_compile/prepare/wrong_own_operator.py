# dishonest: all of it in one operator of one's own: earns 0
import torch
import torch.nn.functional as F


@torch.library.custom_op("lesson11::prepare", mutates_args=())
def hidden(x: torch.Tensor) -> torch.Tensor:
    x = x - x.min()
    y = F.silu(x / x.max()) * 2
    return y + y.roll(-1, 1)


@hidden.register_fake
def _(x):
    return torch.empty_like(x)


def prepare(x):
    return hidden(x)
