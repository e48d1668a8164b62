# One buffer for all roots, made once, as large as the largest parameter.
import math

import torch


def adamw_loop(params, grads, means, squares, step, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):
    b1, b2 = betas
    for p, g, m, v in zip(params, grads, means, squares, strict=True):
        room = torch.sqrt(v.mul_(b2).addcmul_(g, g, value=1 - b2))
        torch.div(room, math.sqrt(1 - b2**step), out=room)
        room += eps
        torch.lerp(m, g, 1 - b1, out=m)
        p.mul_(1 - lr * weight_decay).addcdiv_(m, room, value=-lr / (1 - b1**step))
        del room
