class StaticCache:
    def __init__(self, layers, batch, heads, length, features, dtype=torch.float32, device="cpu"):
        self.keys = torch.zeros(layers, batch, heads, length, features, dtype=dtype, device=device)
        self.values = torch.zeros_like(self.keys)

    def mask(self, places):
        seen = torch.arange(self.keys.shape[3], device=places.device) <= places[:, None]
        return torch.where(seen, 0.0, float("-inf")).to(self.keys.dtype)[None, None]

    def add(self, layer, places, k, v):
        keys, values = self.keys[layer], self.values[layer]
        keys[:, :, places] = k
        values[:, :, places] = v
        return keys, values
