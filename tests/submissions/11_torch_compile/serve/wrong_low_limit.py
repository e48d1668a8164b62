# dishonest: a limit of two codes, and Python for the rest: earns 0
import torch


def serve(model):
    torch._dynamo.config.recompile_limit = 2
    return torch.compile(model, dynamic=False)
