# dishonest: computes in NumPy, where no operator is seen: earns 0
import numpy as np


def adamw_loop(params, grads, means, squares, step, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):
    b1, b2 = betas
    for p, g, m, v in zip(params, grads, means, squares, strict=True):
        p, g, m, v = (t.numpy() for t in (p, g, m, v))
        p *= 1 - lr * weight_decay
        m += (1 - b1) * (g - m)
        v += (1 - b2) * (g * g - v)
        p -= lr / (1 - b1**step) * m / (np.sqrt(v / (1 - b2**step)) + eps)
