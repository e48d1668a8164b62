# waits until the last gradient is there and steps them all together: earns 0
import torch


def step_in_backward(params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):
    state = {p: [0, torch.zeros_like(p), torch.zeros_like(p)] for p in params}
    ready = []

    def hook(p):
        ready.append(p)
        if len(ready) == len(params):
            for q in ready:
                state[q][0] += 1
                step, m, v = state[q]
                adamw_loop([q], [q.grad], [m], [v], step, lr, betas, eps, weight_decay)
                q.grad = None
            ready.clear()

    return [p.register_post_accumulate_grad_hook(hook) for p in params]
