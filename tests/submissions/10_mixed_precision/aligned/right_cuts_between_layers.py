def aligned(weights, biases, multiple):
    """Pads what goes into each matmul, and cuts what comes out: a copy more, within the three arrays."""

    def pad(t):
        right = -t.shape[-1] % multiple
        return F.pad(t, (0, right, 0, -t.shape[0] % multiple)) if t.dim() == 2 else F.pad(t, (0, right))

    layers = [(pad(w).t(), pad(b), len(b)) for w, b in zip(weights, biases, strict=True)]

    def forward(x):
        rows = len(x)
        for i, (w, b, out) in enumerate(layers):
            x = torch.addmm(b, pad(x.sigmoid() if i else x), w)[:rows, :out]
        return x

    return forward
