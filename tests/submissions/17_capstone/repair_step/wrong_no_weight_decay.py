# Adam, which lets no weight decay, where the script has AdamW: earns 0
def repair_step(script):
    def clip(model, most=1.0):
        return nn.utils.clip_grad_norm_(model.parameters(), most)

    def make_optimizer(model):
        return torch.optim.Adam(model.parameters(), lr=2e-3, fused=True)

    return script.replace(clip=clip, make_optimizer=make_optimizer)
