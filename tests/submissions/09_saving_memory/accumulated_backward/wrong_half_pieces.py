# dishonest: computes in larger pieces than asked, under the eye of the tests of values: earns 0
def accumulated_backward(model, inputs, targets, rows):
    rows = max(rows, len(inputs) // 2)
    total, found = (targets != -100).sum(), 0.0
    for some, wanted in zip(inputs.split(rows), targets.split(rows)):
        loss = F.cross_entropy(model(some).flatten(0, 1), wanted.flatten(), reduction="sum") / total
        loss.backward()
        found = found + loss.detach()
    return found
