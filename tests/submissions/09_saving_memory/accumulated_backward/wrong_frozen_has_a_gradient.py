# divides every gradient at the end, also that of a frozen parameter, which is None: earns 1
def accumulated_backward(model, inputs, targets, rows):
    before = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    total, found = (targets != -100).sum(), 0.0
    for some, wanted in zip(inputs.split(rows), targets.split(rows)):
        loss = F.cross_entropy(model(some).flatten(0, 1), wanted.flatten(), reduction="sum")
        loss.backward()
        found = found + loss.detach()
    for p, old in zip(model.parameters(), before):
        p.grad /= total
        if old is not None:
            p.grad += old
    return found / total
