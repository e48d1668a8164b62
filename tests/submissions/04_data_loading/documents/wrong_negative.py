# takes -1 for the last document: earns 2
class Documents(Dataset):
    def __init__(self, open_map, ends):
        self.open_map, self.ends, self.map = open_map, ends, None

    def __len__(self):
        return len(self.ends)

    def bounds(self, i):
        i = i + len(self.ends) if i < 0 else i
        if i >= len(self.ends):
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
        out, k = [], 0
        while k < len(indices):
            n = 1
            while k + n < len(indices) and indices[k + n] == indices[k] + n:
                n += 1
            start = self.bounds(indices[k])[0]
            piece = torch.from_numpy(np.array(self.opened()[start : self.bounds(indices[k + n - 1])[1]]))
            for i in indices[k : k + n]:
                a, b = self.bounds(i)
                out.append(piece[a - start : b - start])
            k += n
        return out
