# in few operators, but the root, the corrected root and the last turn's denominator live together: earns 0
import math


def adamw_loop(params, grads, means, squares, step, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):
    b1, b2 = betas
    for p, g, m, v in zip(params, grads, means, squares, strict=True):
        p.mul_(1 - lr * weight_decay)
        m.lerp_(g, 1 - b1)
        v.mul_(b2).addcmul_(g, g, value=1 - b2)
        root = v.sqrt()
        denominator = (root / math.sqrt(1 - b2**step)).add_(eps)
        p.addcdiv_(m, denominator, value=-lr / (1 - b1**step))
