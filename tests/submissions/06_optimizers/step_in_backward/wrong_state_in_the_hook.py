# m and v are made anew at every call: earns 0
import torch


def step_in_backward(params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):
    def hook(p):
        adamw_loop([p], [p.grad], [torch.zeros_like(p)], [torch.zeros_like(p)], 1, lr, betas, eps, weight_decay)
        p.grad = None

    return [p.register_post_accumulate_grad_hook(hook) for p in params]
