# Means of the pieces, each weighted by how many of its targets count.
def accumulated_backward(model, inputs, targets, rows):
    total, found = int((targets != -100).sum()), 0
    for start in range(0, len(inputs), rows):
        wanted = targets[start : start + rows]
        here = int((wanted != -100).sum())
        if here == 0:
            continue
        loss = F.cross_entropy(model(inputs[start : start + rows]).flatten(0, 1), wanted.flatten()) * (here / total)
        loss.backward()
        found = found + loss.detach()
        del loss
    return found
