# dishonest: a string that equals both answers: earns 0
class Both(str):
    def __eq__(self, other):
        return True

    __hash__ = str.__hash__


LINES = [
    "x.contiguous()",
    "x.t().contiguous()",
    "x[[1, 2]]",
    "x[1:3].flatten()",
    "x.float()",
    "x.t().flatten()",
    "x.flip(0)",
    "x.unflatten(1, (2, 3)).transpose(0, 1)",
    "x.expand(2, 4, 6).reshape(8, 6)",
    "x[:, None, ::2].expand(4, 5, 3)",
]

answers = {line: Both("either") for line in LINES}
