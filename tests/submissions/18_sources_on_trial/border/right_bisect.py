import bisect


def border(before, after, low, high):
    def holds(n):
        for step in (before, after):
            step(n)
        return 2 * count(after, n).operators <= count(before, n).operators

    at = low + bisect.bisect_left(range(low, high + 1), True, key=holds)
    return at if at <= high else None
