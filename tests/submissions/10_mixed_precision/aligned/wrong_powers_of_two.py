# rounds up by a bit mask, which takes a power of two: earns 1
def aligned(weights: list[torch.Tensor], biases: list[torch.Tensor], multiple: int):
    def missing(n):
        return ((n + multiple - 1) & ~(multiple - 1)) - n

    padded = [
        (F.pad(w, (0, missing(w.shape[1]), 0, missing(w.shape[0]))), F.pad(b, (0, missing(len(b)))))
        for w, b in zip(weights, biases)
    ]
    features = weights[-1].shape[0]

    def forward(x: torch.Tensor) -> torch.Tensor:
        rows = x.shape[0]
        y = F.pad(x, (0, missing(x.shape[1]), 0, missing(rows)))
        for i, (w, b) in enumerate(padded):
            y = F.linear(y, w, b)
            if i + 1 < len(padded):
                y = y.sigmoid_()
        return y[:rows, :features]

    return forward
