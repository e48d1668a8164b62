# half of an odd number is rounded up: earns 0
def border(before, after, low, high):
    def holds(n):
        before(n), after(n)
        return count(after, n).operators <= round(count(before, n).operators / 2 + 0.1)

    if not holds(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return high
