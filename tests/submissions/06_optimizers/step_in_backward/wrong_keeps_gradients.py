# steps in the hook and leaves the gradients where they are, so the next backward adds to them: earns 0
import torch


def step_in_backward(params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):
    state = {p: [0, torch.zeros_like(p), torch.zeros_like(p)] for p in params}

    def hook(p):
        state[p][0] += 1
        step, m, v = state[p]
        adamw_loop([p], [p.grad], [m], [v], step, lr, betas, eps, weight_decay)

    return [p.register_post_accumulate_grad_hook(hook) for p in params]
