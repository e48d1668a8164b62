# weights each piece's mean by a quotient of two integer tensors, which is float32: earns 0
def accumulated_backward(model, inputs, targets, rows):
    total, found = (targets != -100).sum(), 0
    for some, wanted in zip(inputs.split(rows), targets.split(rows)):
        here = (wanted != -100).sum()
        if here:
            loss = F.cross_entropy(model(some).flatten(0, 1), wanted.flatten()) * (here / total)
            loss.backward()
            found = found + loss.detach()
    return found
