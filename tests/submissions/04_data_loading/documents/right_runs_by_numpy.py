# Runs are found with np.diff; each document is a copy of a slice of its run's block.
class Documents(Dataset):
    def __init__(self, open_map, ends):
        self.open_map, self.ends, self._map = open_map, ends, None

    def __len__(self):
        return self.ends.shape[0]

    def __getitem__(self, i):
        if i < 0 or i >= len(self):
            raise IndexError(f"{i} of {len(self)}")
        return self.__getitems__([i])[0]

    def __getitems__(self, indices):
        if self._map is None:
            self._map = self.open_map()
        which = np.asarray(indices, np.int64)
        found = []
        for run in np.split(which, np.flatnonzero(np.diff(which) != 1) + 1):
            if run.size == 0:
                continue
            stops = self.ends[run]
            starts = np.where(run > 0, self.ends[run - 1], 0)
            page = self._map[int(starts[0]) : int(stops[-1])]
            found += [torch.from_numpy(page[a:b].copy()) for a, b in zip(starts - starts[0], stops - starts[0])]
        return found

    def __getstate__(self):
        return self.__dict__ | {"_map": None}
