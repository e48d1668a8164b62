class StaticCache:
    def __init__(self, batch, heads, length, features, dtype=torch.float32, device="cpu"):
        self.keys = torch.zeros(batch, heads, length, features, dtype=dtype, device=device)
        self.values = torch.zeros_like(self.keys)

    def add(self, places, k, v):
        self.keys[:, :, places] = k
        self.values[:, :, places] = v
        return self.keys, self.values
