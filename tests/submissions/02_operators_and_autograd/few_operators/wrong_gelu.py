# gelu is another function than z · sigmoid(z): earns 0
def block(x, w, b, gate, residual, gamma, beta, eps=1e-5):
    h = torch.addcmul(residual, gate, F.linear(x, w, b))
    return F.gelu(F.layer_norm(h, h.shape[-1:], gamma, beta, eps))
