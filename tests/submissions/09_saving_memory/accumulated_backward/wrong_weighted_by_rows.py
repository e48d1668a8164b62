# weights pieces by their rows and not by the targets that count: earns 0
def accumulated_backward(model, inputs, targets, rows):
    found = 0.0
    for some, wanted in zip(inputs.split(rows), targets.split(rows)):
        loss = F.cross_entropy(model(some).flatten(0, 1), wanted.flatten()) * (len(some) / len(inputs))
        loss.backward()
        found = found + loss.detach()
    return found
