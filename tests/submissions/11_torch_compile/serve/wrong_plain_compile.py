# the shapes as they come: earns 0
import torch


def serve(model):
    return torch.compile(model)
