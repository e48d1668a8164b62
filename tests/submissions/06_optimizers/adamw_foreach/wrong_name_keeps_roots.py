# the last group's roots live on while the next group makes its own: earns 0
import math

import torch


def adamw_foreach(params, grads, means, squares, step, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, temp_bytes=None):
    b1, b2 = betas
    cuts, held = [0], 0
    for i, p in enumerate(params):
        if temp_bytes is not None and i > cuts[-1] and held + p.nbytes > temp_bytes:
            cuts.append(i)
            held = 0
        held += p.nbytes
    for a, b in zip(cuts, [*cuts[1:], len(params)]):
        p, g, m, v = params[a:b], grads[a:b], means[a:b], squares[a:b]
        torch._foreach_mul_(p, 1 - lr * weight_decay)
        torch._foreach_lerp_(m, g, 1 - b1)
        torch._foreach_mul_(v, b2)
        torch._foreach_addcmul_(v, g, g, 1 - b2)
        roots = torch._foreach_sqrt(v)
        torch._foreach_div_(roots, math.sqrt(1 - b2**step))
        torch._foreach_add_(roots, eps)
        torch._foreach_addcdiv_(p, m, roots, -lr / (1 - b1**step))
