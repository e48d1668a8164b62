# answers lie in one buffer: the next call overwrites them: earns 0
def serve(model):
    fast = torch.compile(model, dynamic=True)
    room = {}

    def answer(x):
        n, length, d = x.shape
        rows = fast(x.reshape(n * length, d).detach())
        if "out" not in room or room["out"].numel() < rows.numel():
            room["out"] = torch.empty(4 * rows.numel())
        out = room["out"][: rows.numel()].view(n, length, rows.shape[-1])
        return out.copy_(rows.view(out.shape))

    return answer
