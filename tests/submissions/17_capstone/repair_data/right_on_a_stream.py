def repair_data(script):
    def fetch(files, rows):
        return torch.from_numpy(files.read(rows)), torch.from_numpy(files.labels[rows])

    def loading(cores, gpu):
        return {"num_workers": max(1, cores // 2), "pin_memory": gpu.device.type != "cpu"}

    def send(batches, gpu):
        side = gpu.Stream() if gpu.device.type != "cpu" else None
        ready = []
        for there in batches:
            if side is not None:
                with gpu.stream(side):
                    there = [tensor.to(gpu.device, non_blocking=True) for tensor in there]
                gpu.current_stream().wait_stream(side)
                for tensor in there:
                    tensor.record_stream(gpu.current_stream())
            ready.append(there)
            if len(ready) > 2:  # two batches ahead
                yield ready.pop(0)
        yield from ready

    return script.replace(fetch=fetch, loading=loading, send=send)
