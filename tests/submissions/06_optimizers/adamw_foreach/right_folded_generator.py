# Seven operators a group; groups from a generator; the roots die at the end of a helper.
import torch


def groups(params, lid):
    group, held = [], 0
    for i, p in enumerate(params):
        size = p.numel() * p.element_size()
        if group and lid is not None and held + size > lid:
            yield group
            group, held = [], 0
        group.append(i)
        held += size
    yield group


def adamw_foreach(params, grads, means, squares, step, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, temp_bytes=None):
    b1, b2 = betas
    root2 = (1 - b2**step) ** 0.5
    torch._foreach_mul_(params, 1 - lr * weight_decay)
    torch._foreach_lerp_(means, grads, weight=1 - b1)
    torch._foreach_mul_(squares, b2)
    torch._foreach_addcmul_(squares, grads, grads, value=1 - b2)
    for group in groups(params, temp_bytes):
        roots = torch._foreach_sqrt([squares[i] for i in group])
        torch._foreach_add_(roots, eps * root2)
        p, m = [params[i] for i in group], [means[i] for i in group]
        torch._foreach_addcdiv_(p, m, roots, value=-lr * root2 / (1 - b1**step))
        del roots
