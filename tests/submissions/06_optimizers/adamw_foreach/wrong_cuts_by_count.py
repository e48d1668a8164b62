# groups of equally many parameters, however large these are: earns 0
import math

import torch


def adamw_foreach(params, grads, means, squares, step, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, temp_bytes=None):
    b1, b2 = betas

    def group(p, g, m, v):
        torch._foreach_mul_(p, 1 - lr * weight_decay)
        torch._foreach_lerp_(m, g, 1 - b1)
        torch._foreach_mul_(v, b2)
        torch._foreach_addcmul_(v, g, g, 1 - b2)
        roots = torch._foreach_sqrt(v)
        torch._foreach_div_(roots, math.sqrt(1 - b2**step))
        torch._foreach_add_(roots, eps)
        torch._foreach_addcdiv_(p, m, roots, -lr / (1 - b1**step))

    if temp_bytes is None:
        return group(params, grads, means, squares)
    groups = math.ceil(sum(p.nbytes for p in params) / temp_bytes)
    k = math.ceil(len(params) / groups)
    for i in range(0, len(params), k):
        group(params[i : i + k], grads[i : i + k], means[i : i + k], squares[i : i + k])
