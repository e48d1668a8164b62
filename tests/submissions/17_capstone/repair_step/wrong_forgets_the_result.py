# one all-reduce of all gradients, and what it returns is never copied back: earns 0
def repair_step(script):
    def share(model):
        if dist.is_initialized():
            grads = [p.grad for p in model.parameters() if p.grad is not None]
            flat = torch.cat([grad.flatten() for grad in grads]) / dist.get_world_size()
            dist.all_reduce(flat)

    return script.replace(share=share)
