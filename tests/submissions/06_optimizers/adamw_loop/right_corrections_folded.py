# Seven operators: both corrections go into eps and into the size of the step.
def adamw_loop(params, grads, means, squares, step, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):
    b1, b2 = betas
    root2 = (1 - b2**step) ** 0.5
    for p, g, m, v in zip(params, grads, means, squares, strict=True):
        p *= 1 - lr * weight_decay
        m.mul_(b1).add_(g, alpha=1 - b1)
        v.mul_(b2).addcmul_(g, g, value=1 - b2)
        p.addcdiv_(m, v.sqrt().add_(eps * root2), value=-lr * root2 / (1 - b1**step))
