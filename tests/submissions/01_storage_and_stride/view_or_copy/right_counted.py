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

x = torch.arange(24.0).reshape(4, 6)
answers = {line: "copy" if count(eval, line, {"x": x}).bytes_allocated else "view" for line in LINES}
