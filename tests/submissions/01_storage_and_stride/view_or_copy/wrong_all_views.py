# all views: earns 0
answers = {
    "x.contiguous()": "view",
    "x.t().contiguous()": "view",
    "x[[1, 2]]": "view",
    "x[1:3].flatten()": "view",
    "x.float()": "view",
    "x.t().flatten()": "view",
    "x.flip(0)": "view",
    "x.unflatten(1, (2, 3)).transpose(0, 1)": "view",
    "x.expand(2, 4, 6).reshape(8, 6)": "view",
    "x[:, None, ::2].expand(4, 5, 3)": "view",
}
