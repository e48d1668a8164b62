# every line makes a new tensor and moves a name; the caller's stay as they were: earns 0
def adamw_loop(params, grads, means, squares, step, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):
    b1, b2 = betas
    for p, g, m, v in zip(params, grads, means, squares, strict=True):
        m = m.lerp_(g, 1 - b1)
        v = v.mul_(b2).addcmul_(g, g, value=1 - b2)
        p = p * (1 - lr * weight_decay)
        p = p - lr * (m / (1 - b1**step)) / ((v / (1 - b2**step)).sqrt() + eps)
