# only the weights' part: earns 0
def grad_norms(x, y, w1, b1, w2, b2):
    with torch.no_grad():
        h = torch.tanh(F.linear(x, w1, b1))
        d2 = F.linear(h, w2, b2).softmax(1) - F.one_hot(y, w2.shape[0])
        d1 = (d2 @ w2) * (1 - h * h)
        sq = lambda t: t.square().sum(1)
        return torch.sqrt(sq(d2) * sq(h) + sq(d1) * sq(x))
