# the logits of the whole batch: earns 0
def chunked_cross_entropy(hidden, weight, targets, rows):
    return F.cross_entropy(hidden @ weight.T, targets)
