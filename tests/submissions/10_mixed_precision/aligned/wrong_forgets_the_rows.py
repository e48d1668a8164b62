# features only, not the rows: earns 0
def aligned(weights, biases, multiple):
    def extra(n):
        return -n % multiple

    wide = [F.pad(w, (0, extra(w.shape[1]), 0, extra(w.shape[0]))) for w in weights]
    long = [F.pad(b, (0, extra(len(b)))) for b in biases]
    out = len(biases[-1])

    def forward(x):
        y = F.pad(x, (0, extra(x.shape[1])))
        for i, (w, b) in enumerate(zip(wide, long, strict=True)):
            y = F.linear(y.sigmoid() if i else y, w, b)
        return y[: len(x), :out]

    return forward
