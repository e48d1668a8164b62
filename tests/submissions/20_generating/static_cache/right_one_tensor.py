class StaticCache:
    def __init__(self, batch, heads, length, features, dtype=torch.float32, device="cpu"):
        self.both = torch.zeros(2, batch, heads, length, features, dtype=dtype, device=device)

    def add(self, places, k, v):
        for mine, new in zip(self.both, (k, v)):
            torch.ops.aten.index_copy_(mine, 2, places, new)
        return self.both[0], self.both[1]
