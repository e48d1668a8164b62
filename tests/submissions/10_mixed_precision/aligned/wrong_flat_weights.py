# copies weights row by row from flat memory, whatever their strides: earns 0
def aligned(weights, biases, multiple):
    def up(n):
        return -(-n // multiple) * multiple

    wide, long = [], []
    for w, b in zip(weights, biases, strict=True):
        o, i = w.shape
        new = w.new_zeros(up(o), up(i))
        new[:o, :i] = w.as_strided((o, i), (i, 1))
        wide.append(new)
        long.append(F.pad(b, (0, up(o) - o)))
    out = len(biases[-1])

    def forward(x):
        y = F.pad(x, (0, up(x.shape[1]) - x.shape[1], 0, up(len(x)) - len(x)))
        for i, (w, b) in enumerate(zip(wide, long, strict=True)):
            y = F.linear(y.sigmoid() if i else y, w, b)
        return y[: len(x), :out]

    return forward
