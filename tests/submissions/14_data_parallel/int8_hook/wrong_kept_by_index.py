# keeps the rest by the bucket's index, and buckets are formed anew after the first backward: earns 0
def int8_hook(state, bucket):
    n, buffer = dist.get_world_size(), bucket.buffer()
    rest = state.get(bucket.index())
    if rest is not None and rest.shape == buffer.shape:
        buffer.add_(rest)
    top = buffer.abs().max()
    dist.all_reduce(top, op=dist.ReduceOp.MAX)
    scale = (top / (127 // n)).clamp(min=1e-30)
    whole = (buffer / scale).round().to(torch.int8)
    state[bucket.index()] = buffer - whole * scale
    return dist.all_reduce(whole, async_op=True).get_future().then(lambda f: f.value()[0] * (scale / n))
