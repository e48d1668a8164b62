def repair_data(script):
    def fetch(files, rows):
        return torch.from_numpy(files.read(rows)), torch.from_numpy(files.labels[rows])

    def loading(cores, gpu):
        return {"num_workers": max(1, cores // 2), "pin_memory": gpu.device.type != "cpu"}

    def send(batches, gpu):
        if gpu.device.type == "cpu":
            yield from batches
            return
        side = gpu.Stream()
        for batch in batches:
            with gpu.stream(side):
                there = [tensor.to(gpu.device, non_blocking=True) for tensor in batch]
            gpu.current_stream().wait_stream(side)
            for tensor in there:
                tensor.record_stream(gpu.current_stream())
            yield there

    return script.replace(fetch=fetch, loading=loading, send=send)
