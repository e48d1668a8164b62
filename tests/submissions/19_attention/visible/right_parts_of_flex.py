# Four rules, joined by PyTorch's own and_masks and or_masks.
from torch.nn.attention.flex_attention import and_masks, or_masks


def visible(document, position, window, sinks):
    def same(b, h, i, j):
        return document[b, i] == document[b, j]

    def causal(b, h, i, j):
        return i >= j

    def near(b, h, i, j):
        return i - j < window

    def sink(b, h, i, j):
        return position[b, j] < sinks

    return and_masks(same, causal, or_masks(near, sink))
