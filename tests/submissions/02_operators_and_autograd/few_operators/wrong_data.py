# few operators, but through .data: no gradient comes back: earns 2
def block(x, w, b, gate, residual, gamma, beta, eps=1e-5):
    h = torch.addcmul(residual.data, gate.data, F.linear(x.data, w.data, b.data))
    return F.silu(F.layer_norm(h, h.shape[-1:], gamma, beta, eps))
