def mixed_loss(x, target, w_in, w_up, w_down, w_out, depth):
    half = torch.float16
    a, b, c, d = w_in.to(half), w_up.to(half), w_down.to(half), w_out.to(half)
    h = torch.mm(x.to(half), a).to(torch.float32)
    for _ in range(depth):
        normed = F.rms_norm(h, h.shape[-1:], eps=1e-8)
        wide = F.gelu(torch.mm(normed.to(half), b).to(torch.float32))
        h = h + torch.mm(wide.to(half), c).to(torch.float32)
    out = torch.mm(h.to(half), d).to(torch.float32)
    return ((out - target) ** 2).mean()
