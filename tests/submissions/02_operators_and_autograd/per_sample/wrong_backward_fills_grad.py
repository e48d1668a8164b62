# backward() leaves the batch's gradient in the parameters' .grad: earns 4
import torch
import torch.nn.functional as F


def grad_norms(
    x: torch.Tensor, y: torch.Tensor, w1: torch.Tensor, b1: torch.Tensor, w2: torch.Tensor, b2: torch.Tensor
) -> torch.Tensor:
    with torch.enable_grad():
        first = F.linear(x, w1, b1)
        if not first.requires_grad:
            first.requires_grad_()
        first.retain_grad()
        hidden = torch.tanh(first)
        logits = F.linear(hidden, w2, b2)
        logits.retain_grad()
        F.cross_entropy(logits, y, reduction="sum").backward()  # each row of a .grad is one sample's
    with torch.no_grad():
        squares = logits.grad.square().sum(1) * (hidden.square().sum(1) + 1)
        squares += first.grad.square().sum(1) * (x.square().sum(1) + 1)
        return squares.sqrt()
