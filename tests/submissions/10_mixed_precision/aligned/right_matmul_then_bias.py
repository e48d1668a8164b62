def aligned(weights, biases, multiple):
    sizes = [[n + -n % multiple for n in w.shape] for w in weights]
    ws = [torch.zeros(i, o) for o, i in sizes]
    bs = [torch.zeros(o) for o, _ in sizes]
    for new, old in zip(ws, weights):
        new[: old.shape[1], : old.shape[0]].copy_(old.t())
    for new, old in zip(bs, biases):
        new[: len(old)].copy_(old)

    def forward(x):
        rows, columns = x.shape
        y = torch.zeros(rows + -rows % multiple, len(ws[0]))
        y[:rows, :columns] = x
        for i, (w, b) in enumerate(zip(ws, bs)):
            y = (y if i == 0 else torch.sigmoid(y)).mm(w) + b
        return y[:rows, : len(biases[-1])]

    return forward
