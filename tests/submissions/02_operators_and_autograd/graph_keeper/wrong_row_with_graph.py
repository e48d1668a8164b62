# the row is cloned and not detached, so it comes back with the graph of its step: earns 2
def train(w1, w2, inputs, targets, lr=0.1):
    w1, w2 = w1.clone().requires_grad_(), w2.clone().requires_grad_()
    losses, norms, rows, smooth = [], [], [], None
    for x, y in zip(inputs, targets):
        hidden = torch.tanh(x @ w1)
        loss = (hidden @ w2 - y).pow(2).mean()
        g1, g2 = torch.autograd.grad(loss, (w1, w2))
        losses.append(loss.detach())
        norms.append(torch.sqrt(g1.pow(2).sum() + g2.pow(2).sum()))
        rows.append(hidden[0].clone())
        act = hidden.detach().pow(2).mean()
        smooth = act if smooth is None else 0.9 * smooth + 0.1 * act
        with torch.no_grad():
            w1.sub_(lr * g1)
            w2.sub_(lr * g2)
    return {"loss": torch.stack(losses), "norm": torch.stack(norms), "row": torch.stack(rows), "smooth": smooth,
            "w1": w1.detach(), "w2": w2.detach()}
