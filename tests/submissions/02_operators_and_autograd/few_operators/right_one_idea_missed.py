def block(x, w, b, gate, residual, gamma, beta, eps=1e-5):
    h = torch.addcmul(residual, gate, F.linear(x, w, b))
    h = F.layer_norm(h, h.shape[-1:], gamma, beta, eps)
    return h * torch.sigmoid(h)  # the sixth operator: the one to spare
