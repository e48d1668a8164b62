# State made at the first gradient; torch's fused step, no root at all.
import torch


def step_in_backward(params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):
    def make():
        state = {}

        def hook(p):
            if not state:
                state.update(step=torch.zeros(()), m=torch.zeros_like(p), v=torch.zeros_like(p))
            state["step"] += 1
            torch._fused_adamw_(
                [p], [p.grad], [state["m"]], [state["v"]], [], [state["step"]], lr=lr, beta1=betas[0],
                beta2=betas[1], weight_decay=weight_decay, eps=eps, amsgrad=False, maximize=False,
            )
            p.grad = None

        return hook

    return [p.register_post_accumulate_grad_hook(make()) for p in params]
