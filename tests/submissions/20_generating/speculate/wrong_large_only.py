# right shares, but the large model is asked for each token: earns 0

def speculate(target, draft, prefix, k, coin, pick):
    made = []
    for _ in range(k + 1):
        made.append(pick(target(prefix + made, [])[0]))
    return made
