# takes no notice of the dtype, so it moves twice the bytes: earns 0
class StaticCache:
    def __init__(self, layers, batch, heads, length, features, dtype=torch.float32, device="cpu"):
        self.keys = torch.zeros(layers, batch, heads, length, features, device=device)
        self.values = torch.zeros_like(self.keys)

    def mask(self, places):
        hidden = torch.arange(self.keys.shape[3], device=places.device) > places[:, None]
        return torch.zeros_like(hidden, dtype=self.keys.dtype).masked_fill_(hidden, float("-inf"))

    def add(self, layer, places, k, v):
        keys, values = self.keys[layer], self.values[layer]
        keys[:, :, places] = k.float()
        values[:, :, places] = v.float()
        return keys, values
