# the logits of the piece before are still there while the next one runs: earns 0
def accumulated_backward(model, inputs, targets, rows):
    total, found = (targets != -100).sum(), 0.0
    for some, wanted in zip(inputs.split(rows), targets.split(rows)):
        logits = model(some)
        loss = F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="sum") / total
        loss.backward()
        found += loss.detach()
    return found
