# the mean of the losses: every gradient is too small by the batch: earns 0
def grad_norms(x, y, w1, b1, w2, b2):
    z1 = F.linear(x, w1, b1).detach().requires_grad_()
    h = torch.tanh(z1)
    z2 = F.linear(h, w2, b2)
    d1, d2 = torch.autograd.grad(F.cross_entropy(z2, y), (z1, z2))
    sq = lambda t: t.detach().square().sum(1)
    return torch.sqrt(sq(d2) * (sq(h) + 1) + sq(d1) * (sq(x) + 1))
