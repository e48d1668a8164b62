def block(x, w, b, gate, residual, gamma, beta, eps=1e-5):
    # gate · (w x + b) + residual = (gate·w) x + (residual + gate·b)
    shift = torch.addcmul(residual, gate, b)
    h = torch.addmm(shift, x, w.t() * gate)
    return F.silu(F.layer_norm(h, (h.shape[-1],), gamma, beta, eps))
