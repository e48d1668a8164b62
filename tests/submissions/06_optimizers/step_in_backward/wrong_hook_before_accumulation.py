# register_hook: called before the gradient lies in .grad, which then comes all the same: earns 0
import torch


def step_in_backward(params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):
    state = {p: [0, torch.zeros_like(p), torch.zeros_like(p)] for p in params}

    def make(p):
        def hook(grad):
            state[p][0] += 1
            step, m, v = state[p]
            with torch.no_grad():
                adamw_loop([p], [grad], [m], [v], step, lr, betas, eps, weight_decay)

        return hook

    return [p.register_hook(make(p)) for p in params]
