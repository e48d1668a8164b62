def serve(model):
    """Pads a little: at most two rows a call, so there is no version for one row."""
    fast = torch.compile(model, dynamic=True)

    def answer(x):
        n, l, d = x.shape
        rows = n * l
        padded = F.pad(x.reshape(rows, d), (0, 0, 0, -rows % 3))
        return fast(padded.contiguous().detach())[:rows].unflatten(0, (n, l))

    return answer
