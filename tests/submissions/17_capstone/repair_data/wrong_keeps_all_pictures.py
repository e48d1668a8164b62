# the first batch reads all pictures, which then stay in memory: earns 0
def repair_data(script):
    kept = {}

    def fetch(files, rows):
        if id(files) not in kept:
            kept[id(files)] = files, torch.from_numpy(files.read(list(range(len(files)))))
        return kept[id(files)][1][rows], torch.from_numpy(files.labels[rows])

    def loading(cores, gpu):
        return {"num_workers": max(1, cores // 2), "pin_memory": gpu.device.type != "cpu"}

    def send(batches, gpu):
        for batch in batches:
            yield [tensor.to(gpu.device, non_blocking=True) for tensor in batch]

    return script.replace(fetch=fetch, loading=loading, send=send)
