# float() on float32 taken for a copy, flip for a view as in NumPy: earns 1
answers = {
    "x.contiguous()": "view",
    "x.t().contiguous()": "copy",
    "x[[1, 2]]": "copy",
    "x[1:3].flatten()": "view",
    "x.float()": "copy",
    "x.t().flatten()": "copy",
    "x.flip(0)": "view",
    "x.unflatten(1, (2, 3)).transpose(0, 1)": "view",
    "x.expand(2, 4, 6).reshape(8, 6)": "copy",
    "x[:, None, ::2].expand(4, 5, 3)": "view",
}
