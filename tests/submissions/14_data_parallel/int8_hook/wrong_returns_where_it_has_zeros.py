# a rank whose bucket is all zeros returns at once, and the others wait for it: earns 1
def int8_hook(state, bucket):
    n, buffer = dist.get_world_size(), bucket.buffer()
    for p, gradient in zip(bucket.parameters(), bucket.gradients()):
        gradient += state.get(p, 0)
    largest = buffer.abs().max()
    if largest == 0:
        done = torch.futures.Future()
        done.set_result(buffer)
        return done
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    scale = largest / (127 // n)
    whole = (buffer / scale).round().to(torch.int8)
    buffer -= whole * scale
    for p, rest in zip(bucket.parameters(), bucket.gradients()):
        state[p] = rest.clone()
    return dist.all_reduce(whole, async_op=True).get_future().then(lambda f: f.value()[0] * (scale / n))
