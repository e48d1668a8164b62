import torch


def serve(model):
    four = torch.compile(model, fullgraph=True)
    one = torch.compile(model, fullgraph=True)

    def answer(x):
        n, l, d = x.shape
        rows, out = x.reshape(-1, d), []
        for piece in rows.split(4):
            f = four if len(piece) == 4 else one
            out += [f(piece.clone())] if f is four else [f(row.clone()[None]) for row in piece]
        return torch.cat(out).reshape(n, l, -1)

    return answer
