# goes one row at a time, whatever `rows` says: equal and small, at many times the launches: earns 0
def accumulated_backward(model, inputs, targets, rows):
    total, found = (targets != -100).sum(), 0.0
    for some, wanted in zip(inputs.split(1), targets.split(1)):
        loss = F.cross_entropy(model(some).flatten(0, 1), wanted.flatten(), reduction="sum") / total
        loss.backward()
        found = found + loss.detach()
    return found
