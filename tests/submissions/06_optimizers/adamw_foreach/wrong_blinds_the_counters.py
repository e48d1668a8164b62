# dishonest: switches the counters off and runs the loop: earns 0
import torch


def adamw_foreach(params, grads, means, squares, step, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, temp_bytes=None):
    with torch.utils._python_dispatch._disable_current_modes():
        adamw_loop(params, grads, means, squares, step, lr, betas, eps, weight_decay)
