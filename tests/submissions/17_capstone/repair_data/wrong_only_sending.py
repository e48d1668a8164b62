# repairs loading and send, and still reads the whole file as float64: earns 2
def repair_data(script):
    def loading(cores, gpu):
        return {"num_workers": max(1, cores // 2), "pin_memory": gpu.device.type != "cpu"}

    def send(batches, gpu):
        for batch in batches:
            yield [tensor.to(gpu.device, non_blocking=True) for tensor in batch]

    return script.replace(loading=loading, send=send)
