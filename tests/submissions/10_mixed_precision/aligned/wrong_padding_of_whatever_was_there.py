# x's padding is old memory and not zeros, and nan * 0 is nan: earns 0
def aligned(weights: list[torch.Tensor], biases: list[torch.Tensor], multiple: int):
    def more(n):
        return -n % multiple

    layers = [
        (F.pad(w, (0, more(w.shape[1]), 0, more(w.shape[0]))), F.pad(b, (0, more(len(b)))))
        for w, b in zip(weights, biases, strict=True)
    ]
    out = len(biases[-1])

    def forward(x):
        rows, features = x.shape
        h = x.new_empty(rows + more(rows), features + more(features))
        h[:rows, :features] = x  # the added columns meet zeros in the first weight
        for i, (w, b) in enumerate(layers):
            h = F.linear(torch.sigmoid(h) if i else h, w, b)
        return h[:rows, :out]

    return forward
