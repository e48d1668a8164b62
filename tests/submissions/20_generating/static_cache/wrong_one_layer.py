# one room for all layers: earns 0
class StaticCache:
    def __init__(self, layers, batch, heads, length, features, dtype=torch.float32, device="cpu"):
        self.keys = torch.zeros(1, batch, heads, length, features, dtype=dtype, device=device)
        self.values = torch.zeros_like(self.keys)

    def mask(self, places):
        hidden = torch.arange(self.keys.shape[3], device=places.device) > places[:, None]
        return torch.zeros_like(hidden, dtype=self.keys.dtype).masked_fill_(hidden, float("-inf"))

    def add(self, layer, places, k, v):
        self.keys[0].index_copy_(2, places, k)
        self.values[0].index_copy_(2, places, v)
        return self.keys[0], self.values[0]
