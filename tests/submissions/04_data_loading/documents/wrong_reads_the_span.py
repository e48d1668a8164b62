# one slice from the first to the last document of a batch, with all that lies between: earns 1
class Documents(Dataset):
    def __init__(self, open_map, ends):
        self.open_map, self.ends, self.map = open_map, ends, None

    def __len__(self):
        return len(self.ends)

    def bounds(self, i):
        if not 0 <= i < len(self.ends):
            raise IndexError(i)
        return (int(self.ends[i - 1]) if i else 0), int(self.ends[i])

    def opened(self):
        if self.map is None:
            self.map = self.open_map()
        return self.map

    def __getstate__(self):
        return self.__dict__ | {"map": None}

    def __getitem__(self, i):
        a, b = self.bounds(i)
        return torch.from_numpy(np.array(self.opened()[a:b]))

    def __getitems__(self, indices):
        start = min(self.bounds(i)[0] for i in indices)
        end = max(self.bounds(i)[1] for i in indices)
        piece = torch.from_numpy(np.array(self.opened()[start:end]))
        return [piece[a - start : b - start] for a, b in map(self.bounds, indices)]
