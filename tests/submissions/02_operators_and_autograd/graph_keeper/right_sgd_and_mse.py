def train(w1, w2, inputs, targets, lr=0.1):
    params = [torch.nn.Parameter(w1.clone()), torch.nn.Parameter(w2.clone())]
    optimizer = torch.optim.SGD(params, lr=lr)
    losses, norms, rows, smooth = [], [], [], None
    for x, y in zip(inputs, targets):
        optimizer.zero_grad()
        hidden = torch.tanh(x @ params[0])
        loss = F.mse_loss(hidden @ params[1], y)
        loss.backward()
        optimizer.step()
        value = loss.detach()
        losses.append(value)
        norms.append(torch.linalg.vector_norm(torch.cat([p.grad.flatten() for p in params])))
        rows.append(hidden.detach()[0].clone())
        act = hidden.detach().square().mean()
        smooth = act if smooth is None else torch.lerp(act, smooth, 0.9)
    return {"loss": torch.stack(losses), "norm": torch.stack(norms), "row": torch.stack(rows), "smooth": smooth,
            "w1": params[0].detach(), "w2": params[1].detach()}
