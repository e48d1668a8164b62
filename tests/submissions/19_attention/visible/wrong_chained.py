# a chained comparison wants one truth value of a tensor: earns 0
def visible(document, position, window, sinks):
    def rule(b, h, i, j):
        return (document[b, i] == document[b, j]) & ((0 <= i - j < window) | (position[b, j] < sinks))

    return rule
