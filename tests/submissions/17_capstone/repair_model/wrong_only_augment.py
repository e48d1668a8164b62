# only what is compiled: earns 1
def repair_model(script):
    def normalise(pictures):
        return pictures.float() / 127.5 - 1

    @torch.compile
    def augment(pictures, mirrored):
        numbers = normalise(pictures)
        return torch.where(mirrored[:, None, None, None], numbers.flip(-1), numbers)

    return script.replace(normalise=normalise, augment=augment)
