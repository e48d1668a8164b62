# detached too early: what the reshape then gives is a view: earns 0
import torch


def serve(model):
    compiled = torch.compile(model, dynamic=True)
    return lambda x: compiled(x.detach().reshape(-1, x.shape[-1])).reshape(*x.shape[:-1], -1)
