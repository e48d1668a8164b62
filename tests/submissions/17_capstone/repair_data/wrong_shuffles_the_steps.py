# as loaders are often written: the steps come in another order, so this is another training: earns 0
def repair_data(script):
    def loading(cores, gpu):
        return {"num_workers": cores // 2, "pin_memory": gpu.device.type != "cpu", "shuffle": True}

    def fetch(files, rows):
        return torch.from_numpy(files.read(rows)), torch.from_numpy(files.labels[rows])

    def send(batches, gpu):
        for batch in batches:
            yield [tensor.to(gpu.device, non_blocking=True) for tensor in batch]

    return script.replace(fetch=fetch, loading=loading, send=send)
