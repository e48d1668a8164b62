# A small class for each parameter, the formula written out in place.
import math

import torch


class State:
    def __init__(self, p):
        self.step, self.m, self.v = 0, torch.zeros_like(p), torch.zeros_like(p)


def step_in_backward(params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):
    states = [State(p) for p in params]
    b1, b2 = betas

    @torch.no_grad()
    def update(state, p):
        g, p.grad = p.grad, None
        state.step += 1
        p.mul_(1 - lr * weight_decay)
        state.m.lerp_(g, 1 - b1)
        state.v.mul_(b2).addcmul_(g, g, value=1 - b2)
        root = g.copy_(state.v).sqrt_().div_(math.sqrt(1 - b2**state.step)).add_(eps)
        p.addcdiv_(state.m, root, value=-lr / (1 - b1**state.step))

    return [p.register_post_accumulate_grad_hook(lambda p, s=s: update(s, p)) for p, s in zip(params, states)]
