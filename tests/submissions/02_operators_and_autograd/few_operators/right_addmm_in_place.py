def block(x, w, b, gate, residual, gamma, beta, eps=1e-5):
    h = torch.addmm(b, x, w.t())
    h = (h * gate).add_(residual)
    h = torch.native_layer_norm(h, [h.shape[1]], gamma, beta, eps)[0]
    return F.silu(h, inplace=True)
