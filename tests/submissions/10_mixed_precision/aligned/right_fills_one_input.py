def aligned(weights, biases, multiple):
    """The padded input is made once for each number of rows, and overwritten; added features are switched off by their bias too."""
    def up(n):
        return -(-n // multiple) * multiple

    made = []
    for w, b in zip(weights, biases, strict=True):
        wide = torch.zeros(up(len(w)), up(w.shape[1]))
        wide[: len(w), : w.shape[1]].copy_(w)
        long = torch.full((up(len(w)),), -200.0)
        long[: len(b)].copy_(b)
        made.append((wide.t(), long))
    inputs = {}

    def forward(x):
        rows = up(len(x))
        y = inputs.setdefault(rows, torch.zeros(rows, len(made[0][0])))
        y.zero_()[: len(x), : x.shape[1]].copy_(x)
        for i, (w, b) in enumerate(made):
            y = torch.addmm(b, torch.sigmoid(y) if i else y, w)
        return y.narrow(0, 0, len(x)).narrow(1, 0, len(biases[-1]))

    return forward
