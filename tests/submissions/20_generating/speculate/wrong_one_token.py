# right shares from one call, one token each time: earns 0

def speculate(target, draft, prefix, k, coin, pick):
    return [pick(target(prefix, [])[0])]
