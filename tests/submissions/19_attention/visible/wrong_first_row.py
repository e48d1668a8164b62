# takes the first row's documents for all rows: earns 0
def visible(document, position, window, sinks):
    def rule(b, h, i, j):
        near = (i - j < window) | (position[0, j] < sinks)
        return (document[0, i] == document[0, j]) & (i >= j) & near

    return rule
