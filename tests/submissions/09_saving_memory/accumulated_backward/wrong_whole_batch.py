# the whole batch at once: right values, none of the saving: earns 0
def accumulated_backward(model, inputs, targets, rows):
    loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
    loss.backward()
    return loss.detach()
