# a document that goes on later is taken for another one: earns 1
def visible(document, position, window, sinks):
    changes = F.pad(document[:, 1:] != document[:, :-1], (1, 0)).cumsum(1)

    def rule(b, h, i, j):
        near = (i - j < window) | (position[b, j] < sinks)
        return (changes[b, i] == changes[b, j]) & (i >= j) & near

    return rule
