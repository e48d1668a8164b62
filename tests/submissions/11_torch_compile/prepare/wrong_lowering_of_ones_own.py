# dishonest: an operator of one's own, for which Inductor is told to write something else: earns 0
import torch
import torch.nn.functional as F
from torch._inductor.lowering import lowerings
@torch.library.custom_op("lesson11::old", mutates_args=())
def old(x: torch.Tensor) -> torch.Tensor:
    x = x - x.min()
    x = x / x.max()
    y = torch.cat([F.silu(half) * 2 for half in x.chunk(2)])
    return y + torch.cat([y[:, 1:], y[:, :1]], 1)
@old.register_fake
def _(x):
    return torch.empty_like(x)
lowerings[torch.ops.lesson11.old.default] = lambda x: lowerings[torch.ops.aten.neg.default](x)
def prepare(x):
    return old(x)
