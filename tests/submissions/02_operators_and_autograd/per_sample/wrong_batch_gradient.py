# the length of the batch's gradient, once for each sample: earns 0
def grad_norms(x, y, w1, b1, w2, b2):
    ws = [t.detach().requires_grad_() for t in (w1, b1, w2, b2)]
    F.cross_entropy(F.linear(torch.tanh(F.linear(x, *ws[:2])), *ws[2:]), y).backward()
    return torch.sqrt(sum(w.grad.square().sum() for w in ws)).expand(len(x))
