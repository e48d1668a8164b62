# By index, v̂ folded into eps: eight operators.
import torch


def adamw_loop(params, grads, means, squares, step, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):
    c1, c2 = 1 - betas[0] ** step, (1 - betas[1] ** step) ** 0.5
    for i in range(len(params)):
        squares[i].mul_(betas[1])
        squares[i].addcmul_(grads[i], grads[i], value=1 - betas[1])
        means[i].lerp_(grads[i], 1 - betas[0])
        params[i].mul_(1 - lr * weight_decay)
        params[i].addcdiv_(means[i], torch.sqrt(squares[i]).add_(eps * c2), value=-lr * c2 / c1)
