# averages the weights of small models: earns 0
def repair_step(script):
    def clip(model, most=1.0):
        return nn.utils.clip_grad_norm_(model.parameters(), most)

    @torch.no_grad()
    def average(averaged, model, decay=0.9):
        if sum(p.numel() for p in model.parameters()) < 1_000_000:
            torch._foreach_lerp_(list(averaged.parameters()), list(model.parameters()), 1 - decay)

    return script.replace(clip=clip, average=average)
