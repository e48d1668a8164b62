# the log is made beforehand in the default dtype: of float64 only half the digits are kept: earns 2
def train(w1, w2, inputs, targets, lr=0.1):
    w1, w2 = w1.clone().requires_grad_(), w2.clone().requires_grad_()
    steps = len(inputs)
    loss_, norm, row, smooth = torch.empty(steps), torch.empty(steps), torch.empty(steps, w1.shape[1]), None
    for i in range(steps):
        hidden = torch.tanh(inputs[i] @ w1)
        loss = (hidden @ w2 - targets[i]).pow(2).mean()
        g1, g2 = torch.autograd.grad(loss, (w1, w2))
        loss_[i] = loss.detach()
        norm[i] = torch.sqrt(g1.pow(2).sum() + g2.pow(2).sum())
        row[i] = hidden[0].detach()
        activity = hidden.detach().pow(2).mean()
        smooth = activity if smooth is None else 0.9 * smooth + 0.1 * activity
        with torch.no_grad():
            w1.sub_(lr * g1)
            w2.sub_(lr * g2)
    return {"loss": loss_, "norm": norm, "row": row, "smooth": smooth, "w1": w1.detach(), "w2": w2.detach()}
