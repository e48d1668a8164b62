# leaves out a last piece that is smaller: earns 0
def accumulated_backward(model, inputs, targets, rows):
    total, found = (targets != -100).sum(), 0.0
    for i in range(len(inputs) // rows):
        part = slice(i * rows, (i + 1) * rows)
        loss = F.cross_entropy(model(inputs[part]).flatten(0, 1), targets[part].flatten(), reduction="sum") / total
        loss.backward()
        found = found + loss.detach()
    return found
