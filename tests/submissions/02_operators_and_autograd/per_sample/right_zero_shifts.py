def grad_norms(x, y, w1, b1, w2, b2):
    # a zero added to each pre-activation collects that pre-activation's gradient
    s1 = torch.zeros(len(x), w1.shape[0], dtype=x.dtype, requires_grad=True)
    s2 = torch.zeros(len(x), w2.shape[0], dtype=x.dtype, requires_grad=True)
    hidden = torch.tanh(F.linear(x, w1.detach(), b1.detach()) + s1)
    logits = F.linear(hidden, w2.detach(), b2.detach()) + s2
    (-logits.log_softmax(1)[torch.arange(len(y)), y]).sum().backward()
    a = s1.grad.pow(2).sum(1) * (1 + x.pow(2).sum(1))
    return torch.sqrt(a + s2.grad.pow(2).sum(1) * (1 + hidden.detach().pow(2).sum(1)))
