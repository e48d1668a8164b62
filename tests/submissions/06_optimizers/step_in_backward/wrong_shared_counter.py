# one step number, raised at every call of any parameter: earns 0
import torch


def step_in_backward(params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):
    state = {p: (torch.zeros_like(p), torch.zeros_like(p)) for p in params}
    t = 0

    def hook(p):
        nonlocal t
        t += 1
        m, v = state[p]
        adamw_loop([p], [p.grad], [m], [v], t, lr, betas, eps, weight_decay)
        p.grad = None

    return [p.register_post_accumulate_grad_hook(hook) for p in params]
