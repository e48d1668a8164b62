def int8_hook(state, bucket):
    n, buffer = dist.get_world_size(), bucket.buffer().clone()
    at, spans = 0, []
    for p in bucket.parameters():
        spans.append((p, slice(at, at + p.numel())))
        at += p.numel()
    for p, span in spans:
        buffer[span] += state.get(id(p), torch.zeros(p.numel()))
    top = torch.stack([buffer.abs().max()])
    work = dist.all_reduce(top, dist.ReduceOp.MAX, async_op=True)
    work.wait()
    levels = 127 // n
    if float(top) == 0:
        for p, span in spans:
            state[id(p)] = torch.zeros(p.numel())
        whole, unit = torch.zeros(at, dtype=torch.int8), 0.0
    else:
        unit = float(top) / levels
        whole = torch.round(buffer / unit).clamp(-levels, levels).to(torch.int8)
        for p, span in spans:
            state[id(p)] = buffer[span] - whole[span].float() * unit
    return dist.all_reduce(whole, async_op=True).get_future().then(lambda f: f.value()[0].float() * unit / n)
