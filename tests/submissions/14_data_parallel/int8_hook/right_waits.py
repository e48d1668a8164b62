def int8_hook(state, bucket):
    n = dist.get_world_size()
    rests = state.setdefault("rests", {})
    whole_of = lambda g, unit: torch.clamp(torch.round(g / unit), -(127 // n), 127 // n)
    wanted = [g + rests.get(p, 0) for p, g in zip(bucket.parameters(), bucket.gradients())]
    top = torch.tensor([max(float(w.abs().max()) for w in wanted)])
    dist.all_reduce(top, op=dist.ReduceOp.MAX)
    unit = max(top.item() / (127 // n), 1e-20)
    sent = [whole_of(w, unit) for w in wanted]
    for p, w, s in zip(bucket.parameters(), wanted, sent):
        rests[p] = w - s * unit
    flat = torch.cat([s.flatten() for s in sent]).to(torch.int8)
    dist.all_reduce(flat)
    future = torch.futures.Future()
    future.set_result(flat.float() * (unit / n))
    return future
