class StaticCache:
    def __init__(self, layers, batch, heads, length, features, dtype=torch.float32, device="cpu"):
        self.both = torch.zeros(layers, 2, batch, heads, length, features, dtype=dtype, device=device)
        self.columns = torch.arange(length, device=device)

    def mask(self, places):
        hidden = (self.columns[None] > places[:, None]).to(self.both.dtype)
        return hidden * torch.finfo(self.both.dtype).min

    def add(self, layer, places, k, v):
        for mine, new in zip(self.both[layer], (k, v)):
            torch.ops.aten.index_copy_(mine, 2, places, new)
        return self.both[layer, 0], self.both[layer, 1]
