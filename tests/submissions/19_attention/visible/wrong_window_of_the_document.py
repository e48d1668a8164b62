# counts the window in places of the document, not of the row: earns 1
def visible(document, position, window, sinks):
    def rule(b, h, i, j):
        near = (position[b, i] - position[b, j] < window) | (position[b, j] < sinks)
        return (document[b, i] == document[b, j]) & (i >= j) & near

    return rule
