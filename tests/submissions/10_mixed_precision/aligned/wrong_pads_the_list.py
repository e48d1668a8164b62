# puts the padded weights into the caller's lists: earns 0
def aligned(weights, biases, multiple):
    def up(n):
        return -(-n // multiple) * multiple

    out = len(biases[-1])
    for i, (w, b) in enumerate(zip(weights, biases)):
        weights[i] = F.pad(w, (0, up(w.shape[1]) - w.shape[1], 0, up(w.shape[0]) - w.shape[0]))
        biases[i] = F.pad(b, (0, up(len(b)) - len(b)))

    def forward(x):
        rows = len(x)
        x = F.pad(x, (0, up(x.shape[1]) - x.shape[1], 0, up(rows) - rows))
        for i, (w, b) in enumerate(zip(weights, biases)):
            x = F.linear(x if i == 0 else x.sigmoid(), w, b)
        return x[:rows, :out]

    return forward
