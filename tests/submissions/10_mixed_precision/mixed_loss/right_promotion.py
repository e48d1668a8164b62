def mixed_loss(x, target, w_in, w_up, w_down, w_out, depth):
    """Adding a half to a float gives a float: no cast of the update, or of the result, is written down."""
    half = [w.to(torch.float16) for w in (w_in, w_up, w_down, w_out)]
    h = torch.mm(x.to(torch.float16), half[0]).to(torch.float32)
    for _ in range(depth):
        scale = torch.rsqrt(h.pow(2).mean(dim=1, keepdim=True) + 1e-8)
        update = F.gelu((h * scale).to(torch.float16).mm(half[1])).mm(half[2])
        h = h + update
    return F.mse_loss(h.to(torch.float16).mm(half[3]).float(), target)
