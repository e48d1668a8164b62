# one step number for all, raised at the first parameter's call: earns 0
import torch


def step_in_backward(params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):
    state = {p: [torch.zeros_like(p), torch.zeros_like(p)] for p in params}
    seen, t = set(), [0]

    def hook(p):
        if not seen or p in seen:
            seen.clear()
            t[0] += 1
        seen.add(p)
        m, v = state[p]
        adamw_loop([p], [p.grad], [m], [v], t[0], lr, betas, eps, weight_decay)
        p.grad = None

    return [p.register_post_accumulate_grad_hook(hook) for p in params]
