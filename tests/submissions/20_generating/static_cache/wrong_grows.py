# makes a longer tensor for each token: earns 0

class StaticCache:
    def __init__(self, batch, heads, length, features, dtype=torch.float32, device="cpu"):
        self.keys = self.values = None

    def add(self, places, k, v):
        if self.keys is None:
            self.keys, self.values = k.clone(), v.clone()
        else:
            self.keys = torch.cat([self.keys, k], 2)
            self.values = torch.cat([self.values, v], 2)
        return self.keys, self.values
