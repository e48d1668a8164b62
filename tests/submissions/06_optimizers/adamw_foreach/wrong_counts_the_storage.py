# counts the storage that a parameter lies in: views of one buffer are each counted as all of it: earns 2
import torch

def adamw_foreach(params, grads, means, squares, step, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, temp_bytes=None):
    b1, b2 = betas

    def one(at):
        p, g, m, v = ([x[i] for i in at] for x in (params, grads, means, squares))
        if not p:
            return
        torch._foreach_mul_(p, 1 - lr * weight_decay)
        torch._foreach_lerp_(m, g, 1 - b1)
        torch._foreach_mul_(v, b2)
        torch._foreach_addcmul_(v, g, g, 1 - b2)
        roots = torch._foreach_sqrt(v)
        torch._foreach_div_(roots, (1 - b2**step) ** 0.5)
        torch._foreach_add_(roots, eps)
        torch._foreach_addcdiv_(p, m, roots, -lr / (1 - b1**step))

    group, held = [], 0
    for i, p in enumerate(params):
        size = p.untyped_storage().nbytes()
        if temp_bytes is not None and group and held + size > temp_bytes:
            one(group)
            group, held = [], 0
        group.append(i)
        held += size
    one(group)
