# trains the caller's own weights: earns 0
def train(w1, w2, inputs, targets, lr=0.1):
    losses, norms, rows, smooth = [], [], [], None
    for x, y in zip(inputs, targets):
        hidden = torch.tanh(x @ w1)
        error = hidden @ w2 - y
        loss, delta = error.pow(2).mean(), 2 * error / error.numel()
        g2, g1 = hidden.t() @ delta, x.t() @ ((delta @ w2.t()) * (1 - hidden * hidden))
        losses.append(loss)
        norms.append(torch.sqrt(g1.pow(2).sum() + g2.pow(2).sum()))
        rows.append(hidden[0].clone())
        act = hidden.detach().pow(2).mean()
        smooth = act if smooth is None else 0.9 * smooth + 0.1 * act
        w1.sub_(lr * g1)
        w2.sub_(lr * g2)
    return {"loss": torch.stack(losses), "norm": torch.stack(norms), "row": torch.stack(rows), "smooth": smooth,
            "w1": w1, "w2": w2}
