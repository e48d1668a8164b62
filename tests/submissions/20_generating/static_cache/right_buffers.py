class StaticCache(torch.nn.Module):
    def __init__(self, layers, batch, heads, length, features, dtype=torch.float32, device="cpu"):
        super().__init__()
        shape = (batch, heads, length, features)
        for i in range(2 * layers):
            self.register_buffer(f"room_{i}", torch.zeros(shape, dtype=dtype, device=device))
        self.rooms = list(self.buffers())
        every = torch.full((length, length), float("-inf"), dtype=dtype, device=device).triu(1)
        self.register_buffer("every", every)  # a row for each place, made once

    def mask(self, places):
        return self.every.index_select(0, places)

    def add(self, layer, places, k, v):
        keys, values = self.rooms[2 * layer : 2 * layer + 2]
        return keys.index_copy_(2, places, k), values.index_copy_(2, places, v)
