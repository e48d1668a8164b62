# few operators, but under no_grad: nothing can be trained through it: earns 2
def block(x, w, b, gate, residual, gamma, beta, eps=1e-5):
    with torch.no_grad():
        h = torch.addcmul(residual, gate, F.linear(x, w, b))
        return F.silu(F.layer_norm(h, h.shape[-1:], gamma, beta, eps))
