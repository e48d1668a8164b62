# the first call of `before` at a size is counted: earns 1
def border(before, after, low, high):
    def holds(n):
        after(n)
        return count(after, n).operators <= count(before, n).operators / 2

    if not holds(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return high
