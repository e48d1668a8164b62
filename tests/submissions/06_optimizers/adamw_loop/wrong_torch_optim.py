# hands the work to torch.optim, ten operators a parameter and more temporaries: earns 0
import torch


def adamw_loop(params, grads, means, squares, step, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):
    ps = [torch.nn.Parameter(p) for p in params]
    opt = torch.optim.AdamW(ps, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, foreach=False)
    for p, g, m, v in zip(ps, grads, means, squares, strict=True):
        p.grad = g
        opt.state[p] = {"step": torch.tensor(step - 1.0), "exp_avg": m, "exp_avg_sq": v}
    opt.step()
