# the sinks are the first tokens of the row, and not of each document: earns 0
def visible(document, position, window, sinks):
    def rule(b, h, i, j):
        return (document[b, i] == document[b, j]) & (i >= j) & ((i - j < window) | (j < sinks))

    return rule
