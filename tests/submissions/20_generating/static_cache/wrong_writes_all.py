# every call writes all places: earns 0

class StaticCache:
    def __init__(self, batch, heads, length, features, dtype=torch.float32, device="cpu"):
        self.keys = torch.zeros(batch, heads, length, features, dtype=dtype, device=device)
        self.values = torch.zeros_like(self.keys)

    def add(self, places, k, v):
        new = torch.zeros_like(self.keys)
        self.keys.copy_(self.keys.index_copy(2, places, k))
        self.values.copy_(self.values.index_copy(2, places, v))
        return self.keys, self.values
