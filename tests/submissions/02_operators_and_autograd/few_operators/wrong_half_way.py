# layer_norm found, linear and silu not, so still too many operators: earns 1
def block(x, w, b, gate, residual, gamma, beta, eps=1e-5):
    h = residual + gate * (x @ w.t() + b)
    h = F.layer_norm(h, h.shape[-1:], gamma, beta, eps)
    return h * torch.sigmoid(h)
