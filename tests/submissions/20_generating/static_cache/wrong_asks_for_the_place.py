# the place is asked for, which makes the CPU wait: earns 0

class StaticCache:
    def __init__(self, batch, heads, length, features, dtype=torch.float32, device="cpu"):
        self.keys = torch.zeros(batch, heads, length, features, dtype=dtype, device=device)
        self.values = torch.zeros_like(self.keys)

    def add(self, places, k, v):
        first = int(places[0])
        self.keys[:, :, first : first + k.shape[2]] = k
        self.values[:, :, first : first + k.shape[2]] = v
        return self.keys, self.values
