# takes -1 for the last document: earns 2
class Documents(Dataset):
    def __init__(self, open_map, ends):
        self.open_map, self.ends, self.map = open_map, ends, None

    def __len__(self):
        return len(self.ends)

    def __getitem__(self, i):
        return self.__getitems__([i])[0]

    def __getitems__(self, indices):
        if self.map is None:
            self.map = self.open_map()
        indices = [i + len(self.ends) if i < 0 else i for i in indices]
        found, first = [], 0
        for k, i in enumerate(indices):
            if not 0 <= i < len(self.ends):
                raise IndexError(i)
            if k + 1 == len(indices) or indices[k + 1] != i + 1:
                run = indices[first : k + 1]
                bounds = [int(self.ends[run[0] - 1]) if run[0] else 0, *(int(self.ends[j]) for j in run)]
                tokens = torch.from_numpy(np.array(self.map[bounds[0] : bounds[-1]]))
                found += tokens.split([b - a for a, b in zip(bounds, bounds[1:])])
                first = k + 1
        return found

    def __getstate__(self):
        return self.__dict__ | {"map": None}
