# believes that contiguous() always copies, the rest is right: earns 2
answers = {
    "x.contiguous()": "copy",
    "x.t().contiguous()": "copy",
    "x[[1, 2]]": "copy",
    "x[1:3].flatten()": "view",
    "x.float()": "view",
    "x.t().flatten()": "copy",
    "x.flip(0)": "copy",
    "x.unflatten(1, (2, 3)).transpose(0, 1)": "view",
    "x.expand(2, 4, 6).reshape(8, 6)": "copy",
    "x[:, None, ::2].expand(4, 5, 3)": "view",
}
