# softmax as exp over its sum: large logits overflow, and inf ÷ inf is nan: earns 4
def grad_norms(x, y, w1, b1, w2, b2):
    with torch.no_grad():
        h = torch.tanh(x @ w1.t() + b1)
        z = h @ w2.t() + b2
        p = torch.exp(z) / torch.exp(z).sum(1, keepdim=True)
        d2 = p - F.one_hot(y, len(b2)).to(x.dtype)
        d1 = (d2 @ w2) * (1 - h * h)
        a, b, c, d = (t.square().sum(1) for t in (d1, x, d2, h))
        return torch.sqrt(a * (b + 1) + c * (d + 1))
