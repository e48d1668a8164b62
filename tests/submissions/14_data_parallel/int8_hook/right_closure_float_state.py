# honest: a class keeps the rests by the parameter's data_ptr, sums in int32 are not needed, mean by torch.add
class Rests:
    def __init__(self):
        self.of = {}

    def give(self, p):
        return self.of.setdefault(p.data_ptr(), torch.zeros(p.numel()))


def int8_hook(state, bucket):
    rests = state.setdefault("r", Rests())
    n = dist.get_world_size()
    levels = 127 // n
    parts = [g.flatten() + rests.give(p) for p, g in zip(bucket.parameters(), bucket.gradients())]
    flat = torch.cat(parts)
    top = flat.abs().amax().reshape(1)
    gathered = [torch.empty(1) for _ in range(n)]
    dist.all_gather(gathered, top)
    scale = max(float(t) for t in gathered) / levels or 1.0
    q = torch.round(flat / scale).clamp_(-levels, levels)
    for p, r in zip(bucket.parameters(), (flat - q * scale).split([p.numel() for p in bucket.parameters()])):
        rests.of[p.data_ptr()] = r.clone()
    out = torch.futures.Future()
    q = q.to(torch.int8)
    dist.all_reduce(q, async_op=True).get_future().add_done_callback(lambda f: out.set_result(f.value()[0].float().mul(scale / n)))
    return out
