@torch.no_grad()
def train(w1, w2, inputs, targets, lr=0.1):
    w1, w2 = w1.clone(), w2.clone()
    losses, norms, rows, smooth = [], [], [], None
    for x, y in zip(inputs, targets):
        hidden = torch.tanh(x @ w1)
        error = hidden @ w2 - y
        loss = error.pow(2).mean()
        delta = 2 * error / error.numel()
        g2 = hidden.t() @ delta
        g1 = x.t() @ ((delta @ w2.t()) * (1 - hidden * hidden))
        losses.append(loss)
        norms.append(torch.sqrt(g1.pow(2).sum() + g2.pow(2).sum()))
        rows.append(hidden[0].clone())
        act = hidden.detach().pow(2).mean()
        smooth = act if smooth is None else 0.9 * smooth + 0.1 * act
        w1.sub_(g1, alpha=lr)
        w2.sub_(g2, alpha=lr)
    return {"loss": torch.stack(losses), "norm": torch.stack(norms), "row": torch.stack(rows), "smooth": smooth,
            "w1": w1, "w2": w2}
