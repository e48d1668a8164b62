def serve(model):
    fast = torch.compile(model, dynamic=True, fullgraph=True)

    def answer(x):
        rows = x.new_empty(x.shape[0] * x.shape[1], x.shape[2])
        torch.stack(list(x.unbind(0)), out=rows.view(x.shape))
        return fast(rows).unflatten(0, x.shape[:2])

    return answer
