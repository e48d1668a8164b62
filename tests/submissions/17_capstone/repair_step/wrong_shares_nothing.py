# ranks keep their own gradients: earns 0
def repair_step(script):
    def share(model):
        pass

    return script.replace(share=share)
