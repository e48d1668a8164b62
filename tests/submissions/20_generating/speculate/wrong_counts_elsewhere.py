# asks the large model for each token, with a list of its own to count in: earns 0
def speculate(target, draft, prefix, k, coin, pick):
    made = []
    for _ in range(k + 1):
        made.append(pick(target(prefix + made, [], [0, 0])[0]))
    return made
