# x is padded in columns, and the result once more in rows: two padded x in each call: earns 1
def aligned(weights: list[torch.Tensor], biases: list[torch.Tensor], multiple: int):
    def missing(n):
        return -n % multiple

    layers = [
        (F.pad(w, (0, missing(w.shape[1]), 0, missing(w.shape[0]))), F.pad(b, (0, missing(len(b)))))
        for w, b in zip(weights, biases, strict=True)
    ]
    out = len(biases[-1])

    def forward(x):
        rows, features = x.shape
        x = F.pad(x, (0, missing(features)))
        x = F.pad(x, (0, 0, 0, missing(rows)))
        for w, b in layers[:-1]:
            x = torch.sigmoid(F.linear(x, w, b))
        return F.linear(x, *layers[-1])[:rows, :out]

    return forward
