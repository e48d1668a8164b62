# no error feedback: earns 0
def int8_hook(state, bucket):
    n, buffer = dist.get_world_size(), bucket.buffer()
    top = buffer.abs().max()
    dist.all_reduce(top, op=dist.ReduceOp.MAX)
    scale = (top / (127 // n)).clamp(min=1e-30)
    whole = (buffer / scale).round().to(torch.int8)
    return dist.all_reduce(whole, async_op=True).get_future().then(lambda f: f.value()[0] * (scale / n))
