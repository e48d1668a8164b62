# foreach without the limit: earns 0
import math

import torch


def adamw_foreach(params, grads, means, squares, step, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, temp_bytes=None):
    b1, b2 = betas
    torch._foreach_mul_(params, 1 - lr * weight_decay)
    torch._foreach_lerp_(means, grads, 1 - b1)
    torch._foreach_mul_(squares, b2)
    torch._foreach_addcmul_(squares, grads, grads, 1 - b2)
    roots = torch._foreach_sqrt(squares)
    torch._foreach_div_(roots, math.sqrt(1 - b2**step))
    torch._foreach_add_(roots, eps)
    torch._foreach_addcdiv_(params, means, roots, -lr / (1 - b1**step))
