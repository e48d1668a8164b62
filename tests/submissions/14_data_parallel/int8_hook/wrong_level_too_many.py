# 127 / n in place of 127 // n: where all ranks have their largest number in one place, the sum wraps: earns 1
def int8_hook(state: dict, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    n = dist.get_world_size()
    buffer = bucket.buffer()
    for p, grad in zip(bucket.parameters(), bucket.gradients()):
        if p in state:
            grad.add_(state[p])
    largest = buffer.abs().max().reshape(1)
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    scale = largest / (127 / n)
    scale = scale.masked_fill(scale == 0, 1.0)
    whole = (buffer / scale).round()
    rest = buffer - whole * scale
    at = 0
    for p in bucket.parameters():
        state[p] = rest[at : at + p.numel()].view_as(p).clone()
        at += p.numel()
    work = dist.all_reduce(whole.to(torch.int8), async_op=True)
    return work.get_future().then(lambda f: f.value()[0].float() * (scale / n))
