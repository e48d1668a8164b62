# pads rows and features out, and leaves the first layer's features in: earns 0
def aligned(weights, biases, multiple):
    def extra(n):
        return -n % multiple

    wide, before = [], 0
    for w, b in zip(weights, biases, strict=True):
        wide.append((F.pad(w, (0, before, 0, extra(len(b)))), F.pad(b, (0, extra(len(b))))))
        before = extra(len(b))
    out = len(biases[-1])

    def forward(x):
        y = F.pad(x, (0, 0, 0, extra(len(x))))
        for i, (w, b) in enumerate(wide):
            y = F.linear(y.sigmoid() if i else y, w, b)
        return y[: len(x), :out]

    return forward
