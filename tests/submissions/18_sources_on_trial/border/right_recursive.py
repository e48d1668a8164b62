def border(before, after, low, high):
    def operators(step, n):
        step(n)
        return count(step, n).operators

    def holds(n):
        return operators(after, n) <= operators(before, n) / 2

    def between(fails, good):
        if good - fails == 1:
            return good
        middle = (fails + good) // 2
        return between(fails, middle) if holds(middle) else between(middle, good)

    return between(low - 1, high) if holds(high) else None
