# tries powers of two only: earns 0
def border(before, after, low, high):
    n = low
    while n <= high:
        before(n), after(n)
        if count(after, n).operators <= count(before, n).operators / 2:
            return n
        n *= 2
    return None
