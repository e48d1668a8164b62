# never mirrors a picture: earns 0
def repair_data(script):
    def send(batches, gpu):
        for pictures, labels, mirrored in batches:
            moved = [tensor.to(gpu.device, non_blocking=True) for tensor in (pictures, labels)]
            yield [*moved, torch.zeros(len(labels), dtype=torch.bool, device=gpu.device)]

    return script.replace(send=send)
