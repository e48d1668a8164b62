def train(w1, w2, inputs, targets, lr=0.1):
    w1, w2 = w1.detach().clone(), w2.detach().clone()
    steps = inputs.shape[0]
    out = {"loss": w1.new_empty(steps), "norm": w1.new_empty(steps), "row": w1.new_empty(steps, w1.shape[1])}
    smooth = None
    for i in range(steps):
        w1.requires_grad_()
        w2.requires_grad_()
        hidden = torch.tanh(inputs[i] @ w1)
        loss = (hidden @ w2 - targets[i]).square().mean()
        loss.backward()
        with torch.no_grad():
            out["loss"][i] = loss
            out["norm"][i] = (w1.grad.square().sum() + w2.grad.square().sum()).sqrt()
            out["row"][i] = hidden[0]
            act = hidden.pow(2).mean()
            smooth = act if smooth is None else 0.9 * smooth + 0.1 * act
            w1 -= lr * w1.grad
            w2 -= lr * w2.grad
        w1.grad = w2.grad = None
    return out | {"smooth": smooth, "w1": w1.detach(), "w2": w2.detach()}
