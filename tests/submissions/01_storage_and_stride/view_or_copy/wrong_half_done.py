# only the first four are answered: earns 1
answers = {
    "x.contiguous()": "view",
    "x.t().contiguous()": "copy",
    "x[[1, 2]]": "copy",
    "x[1:3].flatten()": "view",
    "x.float()": "",
    "x.t().flatten()": "",
    "x.flip(0)": "",
    "x.unflatten(1, (2, 3)).transpose(0, 1)": "",
    "x.expand(2, 4, 6).reshape(8, 6)": "",
    "x[:, None, ::2].expand(4, 5, 3)": "",
}
