# begins above the smallest size, and so never returns it: earns 0
def border(before, after, low, high):
    def holds(n):
        before(n), after(n)
        return count(after, n).operators <= count(before, n).operators / 2

    if not holds(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
