# keeps what it was given last, so an earlier rule becomes the later one: earns 0
given = {}


def visible(document, position, window, sinks):
    given.update(document=document, position=position, window=window, sinks=sinks)

    def rule(b, h, i, j):
        document, position = given["document"], given["position"]
        near = (i - j < given["window"]) | (position[b, j] < given["sinks"])
        return (document[b, i] == document[b, j]) & (i >= j) & near

    return rule
