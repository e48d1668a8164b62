# saves the temporary by writing into the gradient, which the caller still needs: earns 0
import math

import torch


def adamw_loop(params, grads, means, squares, step, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):
    b1, b2 = betas
    for p, g, m, v in zip(params, grads, means, squares, strict=True):
        p.mul_(1 - lr * weight_decay)
        m.lerp_(g, 1 - b1)
        v.mul_(b2).addcmul_(g, g, value=1 - b2)
        torch.sqrt(v, out=g)
        p.addcdiv_(m, g.div_(math.sqrt(1 - b2**step)).add_(eps), value=-lr / (1 - b1**step))
