# dynamic=True, and the ones are still sizes of their own: earns 0
import torch


def serve(model):
    return torch.compile(model, dynamic=True)
