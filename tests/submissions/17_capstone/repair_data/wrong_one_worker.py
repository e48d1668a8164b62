# nobody loads ahead: earns 3
def repair_data(script):
    def fetch(files, rows):
        return torch.from_numpy(files.read(rows)), torch.from_numpy(files.labels[rows])

    def send(batches, gpu):
        for batch in batches:
            yield [tensor.to(gpu.device, non_blocking=True) for tensor in batch]

    return script.replace(fetch=fetch, send=send)
