# by formula, without a graph of its own; but where the weights want gradients, as a net's do, the result has one: earns 3
def grad_norms(x, y, w1, b1, w2, b2):
    h = torch.tanh(x @ w1.t() + b1)
    d2 = torch.softmax(h @ w2.t() + b2, 1)
    d2 = d2 - F.one_hot(y, len(b2)).to(x.dtype)
    d1 = (d2 @ w2) * (1 - h * h)
    a, b, c, d = (t.square().sum(1) for t in (d1, x, d2, h))
    return torch.sqrt(a * (b + 1) + c * (d + 1))
