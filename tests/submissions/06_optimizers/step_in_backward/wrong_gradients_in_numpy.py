# dishonest: all gradients at once, as NumPy copies that no counter sees: earns 0
def step_in_backward(params, lr=1e-3, betas=(0.9,0.999), eps=1e-8, weight_decay=1e-2):
    """Keeps gradients as NumPy copies (unseen), all steps after the backward."""
    import numpy as np
    from torch.autograd import Variable
    opt=torch.optim.AdamW(params,lr=lr,betas=betas,eps=eps,weight_decay=weight_decay,foreach=False)
    stash={}
    def done():
        for p,g in list(stash.items()):
            with torch.no_grad():
                p.grad=torch.from_numpy(g)
                opt.step()
                p.grad=None
        stash.clear()
    def hook(p):
        if not stash: Variable._execution_engine.queue_callback(done)
        stash[p]=p.grad.numpy().copy()
        p.grad=None
    return [p.register_post_accumulate_grad_hook(hook) for p in params]
