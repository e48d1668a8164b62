def mixed_loss(x, target, w_in, w_up, w_down, w_out, depth):
    half, full = torch.float16, torch.float32
    weights = [w.to(half) for w in (w_in, w_up, w_down, w_out)]

    def times(a, which):
        return a.to(half).matmul(weights[which])

    h = times(x, 0).to(full)
    for _ in range(depth):
        wide = F.gelu(times(F.normalize(h, dim=-1) * h.shape[-1] ** 0.5, 1))
        h = h + times(wide, 2).to(full)
    return F.mse_loss(times(h, 3).to(full), target)
