# a finite x so large that the loss overflows makes all weights nan: earns 2
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


def train(
    gpu: Any,
    model: nn.Module,
    batches: list[tuple[torch.Tensor, torch.Tensor]],
    class_weights: list[float],
    lr: float = 0.1,
    max_norm: float = 1.0,
    log_every: int = 100,
) -> list[list[float]]:
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    weight = torch.tensor(class_weights, device=gpu.device)
    sums = torch.zeros(4, device=gpu.device)
    one = torch.ones((), device=gpu.device)
    log = []
    for i, (x, y) in enumerate(batches, start=1):
        labelled = y >= 0
        good = torch.isfinite(x).all() & labelled.any()
        logits = model(x)
        loss = F.cross_entropy(logits, y, weight=weight, ignore_index=-1)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        for p in model.parameters():
            p.grad = torch.where(good, p.grad, 0)
        optimizer.step()
        right = (logits.argmax(1) == y).sum()  # no class is -1
        line = torch.stack([loss.detach().float(), one, right.float(), labelled.sum().float()])
        sums += torch.where(good, line, 0)
        if i % log_every == 0:
            total, taken, hits, seen = sums.tolist()
            log.append([i, total / max(taken, 1), hits / max(seen, 1), log_every - int(taken)])
            sums.zero_()
    return log
