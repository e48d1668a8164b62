# sends the first batch once and hands it out again: earns 0
def repair_data(script):
    def send(batches, gpu):
        kept = None
        for batch in batches:
            kept = kept or [tensor.to(gpu.device, non_blocking=True) for tensor in batch]
            yield kept

    return script.replace(send=send)
