# two bytes a number, with feedback: earns 0
def int8_hook(state, bucket):
    n, buffer = dist.get_world_size(), bucket.buffer()
    for p, g in zip(bucket.parameters(), bucket.gradients()):
        if p in state:
            g.add_(state[p])
    half = (buffer / n).half()
    buffer.sub_(half.float() * n)
    for p, g in zip(bucket.parameters(), bucket.gradients()):
        state[p] = g.clone()
    return dist.all_reduce(half, async_op=True).get_future().then(lambda f: f.value()[0].float())
