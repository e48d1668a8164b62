import torch


def serve(model):
    compiled = torch.compile(model, dynamic=True)

    def answer(x):
        n, l, d = x.shape
        if n * l == 1:  # a code of its own, with a size of its own
            return compiled(x.clone())
        rows = torch.empty(n * l, d)
        rows.copy_(x.reshape(-1, d))
        return compiled(rows).reshape(n, l, -1)

    return answer
