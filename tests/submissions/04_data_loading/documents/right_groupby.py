import itertools


class Documents(torch.utils.data.Dataset):
    def __init__(self, open_map, ends):
        self.recipe = open_map
        self.bounds = np.concatenate([[0], ends])

    def __len__(self):
        return len(self.bounds) - 1

    def __getitem__(self, i):
        return self.__getitems__([i])[0]

    def __getitems__(self, indices):
        out = []
        for _, run in itertools.groupby(enumerate(indices), key=lambda ki: ki[1] - ki[0]):
            run = [i for _, i in run]
            if run[0] < 0 or run[-1] >= len(self):
                raise IndexError(run)
            cuts = self.bounds[run[0] : run[-1] + 2]
            piece = torch.from_numpy(self.map()[cuts[0] : cuts[-1]].copy())
            out.extend(piece.split((cuts[1:] - cuts[:-1]).tolist()))
        return out

    def map(self):
        if not hasattr(self, "opened"):
            self.opened = self.recipe()
        return self.opened

    def __getstate__(self):
        return {"recipe": self.recipe, "bounds": self.bounds}
