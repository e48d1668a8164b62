# gives only what is filled, so the shape changes: earns 0
class StaticCache:
    def __init__(self, layers, batch, heads, length, features, dtype=torch.float32, device="cpu"):
        self.keys = torch.zeros(layers, batch, heads, length, features, dtype=dtype, device=device)
        self.values = torch.zeros_like(self.keys)
        self.n = [0] * layers

    def mask(self, places):
        hidden = torch.arange(self.n[0] + len(places), device=places.device) > places[:, None]
        return torch.zeros_like(hidden, dtype=self.keys.dtype).masked_fill_(hidden, float("-inf"))

    def add(self, layer, places, k, v):
        keys, values = self.keys[layer], self.values[layer]
        keys[:, :, places] = k
        values[:, :, places] = v
        self.n[layer] += k.shape[2]
        return keys[:, :, : self.n[layer]], values[:, :, : self.n[layer]]
