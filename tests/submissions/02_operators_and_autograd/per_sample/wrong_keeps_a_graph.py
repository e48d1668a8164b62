# right deltas, but the result hangs on a graph: earns 1
def grad_norms(x, y, w1, b1, w2, b2):
    before = F.linear(x, w1, b1).detach().requires_grad_()
    hidden = torch.tanh(before)
    out = F.linear(hidden, w2, b2)
    d1, d2 = torch.autograd.grad(F.cross_entropy(out, y, reduction="sum"), (before, out), create_graph=True)
    sq = lambda t: t.square().sum(1)
    return torch.sqrt(sq(d2) * (sq(hidden) + 1) + sq(d1) * (sq(x) + 1))
