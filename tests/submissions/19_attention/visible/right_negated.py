# Says which pairs are hidden, and turns that around; the sinks are a table of bools.
class Rule:
    def __init__(self, document, position, window, sinks):
        self.document, self.window, self.sink = document, window, position < sinks

    def __call__(self, b, h, i, j):
        other = self.document[b, i] != self.document[b, j]
        far = torch.where(self.sink[b, j], False, i - j >= self.window)
        return ~(other | (j > i) | far)


def visible(document, position, window, sinks):
    rule = Rule(document, position, window, sinks)
    return lambda b, h, i, j: rule(b, h, i, j)
