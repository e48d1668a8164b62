# the formula taken literally, a new tensor for every sign: earns 0
def adamw_loop(params, grads, means, squares, step, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):
    b1, b2 = betas
    for p, g, m, v in zip(params, grads, means, squares, strict=True):
        m.copy_(b1 * m + (1 - b1) * g)
        v.copy_(b2 * v + (1 - b2) * g * g)
        mhat, vhat = m / (1 - b1**step), v / (1 - b2**step)
        p.copy_(p - lr * weight_decay * p - lr * mhat / (vhat.sqrt() + eps))
