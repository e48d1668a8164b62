# dishonest: a setting of Inductor with which its loops are not found: earns 0
import torch
import torch.nn.functional as F
def prepare(x):
    x = x - x.min()
    x = x / x.max()
    y = torch.cat([F.silu(half) * 2 for half in x.chunk(2)])
    return y + torch.cat([y[:, 1:], y[:, :1]], 1)

torch._inductor.config.cpp_wrapper = True
