# the window holds one key too many: earns 0
def visible(document, position, window, sinks):
    def rule(b, h, i, j):
        near = (i - j <= window) | (position[b, j] < sinks)
        return (document[b, i] == document[b, j]) & (i >= j) & near

    return rule
