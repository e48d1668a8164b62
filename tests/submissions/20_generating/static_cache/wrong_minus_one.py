# hides by −1, which makes a score smaller and not nothing: earns 0
class StaticCache:
    def __init__(self, layers, batch, heads, length, features, dtype=torch.float32, device="cpu"):
        self.keys = torch.zeros(layers, batch, heads, length, features, dtype=dtype, device=device)
        self.values = torch.zeros_like(self.keys)

    def mask(self, places):
        hidden = torch.arange(self.keys.shape[3], device=places.device) > places[:, None]
        return -hidden.to(self.keys.dtype)

    def add(self, layer, places, k, v):
        self.keys[layer].index_copy_(2, places, k)
        self.values[layer].index_copy_(2, places, v)
        return self.keys[layer], self.values[layer]
