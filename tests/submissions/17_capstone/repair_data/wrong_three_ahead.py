# send takes three batches more than it has yielded: earns 0
from collections import deque


def my_fetch(files, rows):
    pictures = torch.as_tensor(files.read(rows))  # one request for the whole batch
    labels = torch.as_tensor(files.labels)[torch.as_tensor(rows)]
    return pictures, labels.to(torch.int64)


def my_loading(cores, gpu):
    return {"num_workers": 1, "pin_memory": gpu.device.type != "cpu"}


def my_send(batches, gpu):
    waiting = deque()
    for batch in batches:
        waiting.append([tensor.to(gpu.device, non_blocking=True) for tensor in batch])
        if len(waiting) > 3:
            yield waiting.popleft()
    while waiting:
        yield waiting.popleft()


def repair_data(script: Script) -> Script:
    return script.replace(fetch=my_fetch, loading=my_loading, send=my_send)
