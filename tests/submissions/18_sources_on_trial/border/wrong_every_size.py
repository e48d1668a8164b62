# tries one size after the other: earns 0
def border(before, after, low, high):
    for n in range(low, high + 1):
        before(n), after(n)
        if count(after, n).operators <= count(before, n).operators / 2:
            return n
    return None
