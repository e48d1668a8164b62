# & binds more tightly than |, so sinks of other documents are seen, and before their time: earns 0
def visible(document, position, window, sinks):
    def rule(b, h, i, j):
        same = document[b, i] == document[b, j]
        return same & (i >= j) & (i - j < window) | (position[b, j] < sinks)

    return rule
