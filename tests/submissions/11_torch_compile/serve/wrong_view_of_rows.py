# flat, but a view, and so the sizes of its base are guarded: earns 0
import torch


def serve(model):
    compiled = torch.compile(model, dynamic=True)
    return lambda x: compiled(x.reshape(-1, x.shape[-1])).reshape(*x.shape[:-1], -1)
