# leaves the augmentation out: earns 0
def repair_model(script):
    def augment(pictures, mirrored):
        return pictures.float() / 127.5 - 1

    return script.replace(augment=augment)
