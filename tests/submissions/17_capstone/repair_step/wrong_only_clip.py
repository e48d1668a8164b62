# the syncs alone: earns 1
def repair_step(script):
    def clip(model, most=1.0):
        return nn.utils.clip_grad_norm_(model.parameters(), most)

    return script.replace(clip=clip)
