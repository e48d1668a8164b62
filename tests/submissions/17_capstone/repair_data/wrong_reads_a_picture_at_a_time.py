# reads the right bytes in a request a picture: earns 3
def repair_data(script):
    def fetch(files, rows):
        pictures = torch.cat([torch.from_numpy(files.read([row])) for row in rows])
        return pictures, torch.from_numpy(files.labels[rows])

    def loading(cores, gpu):
        return {"num_workers": max(1, cores // 2), "pin_memory": gpu.device.type != "cpu"}

    def send(batches, gpu):
        for batch in batches:
            yield [tensor.to(gpu.device, non_blocking=True) for tensor in batch]

    return script.replace(fetch=fetch, loading=loading, send=send)
