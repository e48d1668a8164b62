# takes no notice of the dtype, so it moves twice the bytes: earns 0

class StaticCache:
    def __init__(self, batch, heads, length, features, dtype=torch.float32, device="cpu"):
        self.keys = torch.zeros(batch, heads, length, features, device=device)
        self.values = torch.zeros_like(self.keys)

    def add(self, places, k, v):
        self.keys[:, :, places] = k.float()
        self.values[:, :, places] = v.float()
        return self.keys, self.values
