# the room belongs to the class, so two caches write into one: earns 0
class StaticCache:
    rooms = {}

    def __init__(self, layers, batch, heads, length, features, dtype=torch.float32, device="cpu"):
        size = (layers, batch, heads, length, features, dtype, str(device))
        if size not in self.rooms:
            self.rooms[size] = torch.zeros(2, *size[:5], dtype=dtype, device=device)
        self.keys, self.values = self.rooms[size]

    def mask(self, places):
        hidden = torch.arange(self.keys.shape[3], device=places.device) > places[:, None]
        return torch.zeros_like(hidden, dtype=self.keys.dtype).masked_fill_(hidden, float("-inf"))

    def add(self, layer, places, k, v):
        self.keys[layer].index_copy_(2, places, k)
        self.values[layer].index_copy_(2, places, v)
        return self.keys[layer], self.values[layer]
