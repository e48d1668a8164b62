# a gradient that is transposed or expanded is copied first, a ninth operator: earns 1
import math


def adamw_loop(params, grads, means, squares, step, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):
    b1, b2 = betas
    for p, g, m, v in zip(params, grads, means, squares, strict=True):
        g = g.contiguous()
        p.mul_(1 - lr * weight_decay)
        m.lerp_(g, 1 - b1)
        v.mul_(b2).addcmul_(g, g, value=1 - b2)
        root = v.sqrt().div_(math.sqrt(1 - b2**step)).add_(eps)
        p.addcdiv_(m, root, value=-lr / (1 - b1**step))
