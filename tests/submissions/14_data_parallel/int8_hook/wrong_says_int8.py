# dishonest: sends the exact gradients by broadcasts, which look like DDP's own: earns 0
def int8_hook(state, bucket):
    n, buffer = dist.get_world_size(), bucket.buffer()
    total = torch.zeros_like(buffer)
    for r in range(n):
        part = buffer.clone()
        dist.broadcast(part, r)
        total += part
    future = torch.futures.Future()
    future.set_result(total / n)
    return future
