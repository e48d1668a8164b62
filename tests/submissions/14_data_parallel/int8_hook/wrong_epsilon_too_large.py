# the scale is at least 1e-8: small gradients are rounded to nothing, for ever: earns 1
def int8_hook(state, bucket):
    n, buffer = dist.get_world_size(), bucket.buffer()
    for p, g in zip(bucket.parameters(), bucket.gradients()):
        if p in state:
            g.add_(state[p])
    top = buffer.abs().max()
    dist.all_reduce(top, op=dist.ReduceOp.MAX)
    scale = top / (127 // n) + 1e-8
    whole = (buffer / scale).round().to(torch.int8)
    buffer.sub_(whole * scale)
    for p, g in zip(bucket.parameters(), bucket.gradients()):
        state[p] = g.clone()
    return dist.all_reduce(whole, async_op=True).get_future().then(lambda f: f.value()[0] * (scale / n))
