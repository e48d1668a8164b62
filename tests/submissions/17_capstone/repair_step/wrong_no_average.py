# the averaged weights stay as they were: earns 0
def repair_step(script):
    def clip(model, most=1.0):
        return nn.utils.clip_grad_norm_(model.parameters(), most)

    def average(averaged, model, decay=0.9):
        pass

    return script.replace(clip=clip, average=average)
