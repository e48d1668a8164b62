# a batch ahead, and the last one never comes: earns 0
def repair_data(script):
    def send(batches, gpu):
        before = None
        for batch in batches:
            if before is not None:
                yield before
            before = [tensor.to(gpu.device, non_blocking=True) for tensor in batch]

    return script.replace(send=send)
