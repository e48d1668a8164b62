class Documents(Dataset):
    """np.diff finds the breaks; the map is a lazily opened attribute; an explicit state."""

    def __init__(self, open_map, ends):
        self.__setstate__((open_map, ends))

    def __len__(self):
        return self.ends.shape[0]

    def __getitem__(self, i):
        (document,) = self.__getitems__([i])
        return document

    def __getitems__(self, indices):
        which = np.asarray(indices, dtype=np.int64)
        if which.size and not (0 <= which.min() and which.max() < len(self)):
            raise IndexError(f"no such document among {indices}")
        if not hasattr(self, "tokens"):
            self.tokens = self.open_map()
        starts = np.where(which > 0, self.ends[which - 1], 0)
        stops = self.ends[which]
        documents = []
        for run in np.split(np.arange(len(which)), np.flatnonzero(np.diff(which) != 1) + 1):
            if len(run):
                low, high = int(starts[run[0]]), int(stops[run[-1]])
                block = torch.tensor(self.tokens[low:high], dtype=torch.uint16)
                documents += [block[int(starts[k]) - low : int(stops[k]) - low] for k in run]
        return documents

    def __getstate__(self):
        return self.open_map, self.ends

    def __setstate__(self, state):
        self.open_map, self.ends = state
