# Lists at once already here: fewer operators, but one list of roots for all would be too many bytes, so one by one.
import math

import torch


def adamw_loop(params, grads, means, squares, step, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):
    b1, b2 = betas
    torch._foreach_mul_(params, 1 - lr * weight_decay)
    torch._foreach_lerp_(means, grads, 1 - b1)
    torch._foreach_mul_(squares, b2)
    torch._foreach_addcmul_(squares, grads, grads, 1 - b2)
    for p, m, v in zip(params, means, squares, strict=True):
        p.addcdiv_(m, v.sqrt().div_(math.sqrt(1 - b2**step)).add_(eps), value=-lr / (1 - b1**step))
