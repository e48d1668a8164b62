# the deltas are right, then the outer products are written out: earns 1
def grad_norms(x, y, w1, b1, w2, b2):
    with torch.no_grad():
        h = torch.tanh(F.linear(x, w1, b1))
        d2 = F.linear(h, w2, b2).softmax(1) - F.one_hot(y, w2.shape[0])
        d1 = (d2 @ w2) * (1 - h * h)
        g1, g2 = torch.einsum("bo,bi->boi", d1, x), torch.einsum("bo,bi->boi", d2, h)
        return torch.sqrt(sum(g.flatten(1).square().sum(1) for g in (g1, g2, d1, d2)))
