# dishonest: torch's own fused AdamW in place of one written out: earns 0
import torch


def adamw_loop(params, grads, means, squares, step, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):
    steps = [torch.tensor(float(step)) for _ in params]
    torch._fused_adamw_(
        params, grads, means, squares, [], steps, lr=lr, beta1=betas[0], beta2=betas[1],
        weight_decay=weight_decay, eps=eps, amsgrad=False, maximize=False,
    )
