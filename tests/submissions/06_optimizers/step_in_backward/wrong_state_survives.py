# hooks that are set up anew go on with the old state: earns 2
_STATE = {}


def step_in_backward(params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):
    def hook(p):
        s = _STATE.setdefault(p, [0, torch.zeros_like(p), torch.zeros_like(p)])
        s[0] += 1
        t, m, v = s
        p.mul_(1 - lr * weight_decay)
        m.lerp_(p.grad, 1 - betas[0])
        v.mul_(betas[1]).addcmul_(p.grad, p.grad, value=1 - betas[1])
        p.grad = None
        root = v.sqrt().div_(math.sqrt(1 - betas[1] ** t)).add_(eps)
        p.addcdiv_(m, root, value=-lr / (1 - betas[0] ** t))

    with torch.no_grad():
        return [p.register_post_accumulate_grad_hook(torch.no_grad()(hook)) for p in params]
