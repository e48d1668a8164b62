# a query looks at what comes after it: earns 0
def visible(document, position, window, sinks):
    def rule(b, h, i, j):
        return (document[b, i] == document[b, j]) & ((i - j < window) | (position[b, j] < sinks))

    return rule
