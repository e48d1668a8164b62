# flat copies: reshape copies what is not contiguous, and the step goes into the copy: earns 1
import math


def adamw_loop(params, grads, means, squares, step, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):
    for p, g, m, v in zip(params, grads, means, squares):
        p, g, m, v = (t.reshape(-1) for t in (p, g, m, v)) if not p.is_contiguous() else (p, g, m, v)
        p.mul_(1 - lr * weight_decay)
        m.lerp_(g, 1 - betas[0])
        v.mul_(betas[1]).addcmul_(g, g, value=1 - betas[1])
        root = v.sqrt().div_(math.sqrt(1 - betas[1] ** step)).add_(eps)
        p.addcdiv_(m, root, value=-lr / (1 - betas[0] ** step))
