# Packs parameters into groups first-fit, largest first: fewer groups than neighbours would give.
import math

import torch


def adamw_foreach(params, grads, means, squares, step, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, temp_bytes=None):
    b1, b2 = betas
    lid = temp_bytes if temp_bytes is not None else float("inf")
    bins = []
    for i in sorted(range(len(params)), key=lambda i: -params[i].nbytes):
        for b in bins:
            if b[0] + params[i].nbytes <= lid:
                b[0] += params[i].nbytes
                b[1].append(i)
                break
        else:
            bins.append([params[i].nbytes, [i]])
    roots = None
    for _, group in bins:
        p, g, m, v = ([x[i] for i in group] for x in (params, grads, means, squares))
        torch._foreach_mul_(p, 1 - lr * weight_decay)
        torch._foreach_lerp_(m, g, 1 - b1)
        torch._foreach_mul_(v, b2)
        torch._foreach_addcmul_(v, g, g, 1 - b2)
        roots = None
        roots = torch._foreach_sqrt(v)
        torch._foreach_div_(roots, math.sqrt(1 - b2**step))
        torch._foreach_add_(roots, eps)
        torch._foreach_addcdiv_(p, m, roots, -lr / (1 - b1**step))
