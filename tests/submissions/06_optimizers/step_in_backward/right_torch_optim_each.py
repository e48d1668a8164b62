# One torch.optim.AdamW for each parameter, as PyTorch's own tutorial has it.
import torch


def step_in_backward(params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):
    kinds = dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, foreach=False)
    optimizers = {p: torch.optim.AdamW([p], **kinds) for p in params}

    def hook(p):
        optimizers[p].step()
        optimizers[p].zero_grad(set_to_none=True)

    return [p.register_post_accumulate_grad_hook(hook) for p in params]
