def aligned(weights, biases, multiple):
    """torch.cat with zeros, and the product and the bias apart."""

    def grow(t, dim):
        missing = -t.shape[dim] % multiple
        if not missing:
            return t
        shape = list(t.shape)
        shape[dim] = missing
        return torch.cat([t, t.new_zeros(shape)], dim)

    layers = [(grow(grow(w, 0), 1).t(), grow(b, 0)) for w, b in zip(weights, biases)]
    last = biases[-1].numel()

    def forward(x):
        y = F.pad(x, (0, -x.shape[1] % multiple, 0, -x.shape[0] % multiple))
        first = True
        for w, b in layers:
            y = y if first else y.sigmoid()
            first = False
            y = y.matmul(w).add_(b)
        return y[: x.shape[0]][:, :last]

    return forward
