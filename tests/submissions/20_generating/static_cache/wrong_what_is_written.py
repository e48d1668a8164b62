# hides what was never written, so a prompt's tokens see those behind them: earns 0
class StaticCache:
    def __init__(self, layers, batch, heads, length, features, dtype=torch.float32, device="cpu"):
        self.keys = torch.zeros(layers, batch, heads, length, features, dtype=dtype, device=device)
        self.values = torch.zeros_like(self.keys)
        self.written = torch.full((length,), float("-inf"), dtype=dtype, device=device)

    def mask(self, places):
        self.written[places] = 0.0
        return self.written.expand(len(places), -1)

    def add(self, layer, places, k, v):
        self.keys[layer].index_copy_(2, places, k)
        self.values[layer].index_copy_(2, places, v)
        return self.keys[layer], self.values[layer]
