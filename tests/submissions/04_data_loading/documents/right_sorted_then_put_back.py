class Documents(Dataset):
    """Sorts the batch's indices first, so that neighbours in any order are one read."""

    def __init__(self, open_map, ends):
        self.state = (open_map, ends)
        self.map = None

    def __reduce__(self):
        return Documents, self.state

    def __len__(self):
        return len(self.state[1])

    def __getitems__(self, indices):
        ends = self.state[1]
        if min(indices) < 0 or max(indices) >= len(ends):
            raise IndexError("no such document")
        if self.map is None:
            self.map = self.state[0]()
        found, order = {}, sorted(indices)
        while order:
            n = 1
            while n < len(order) and order[n] == order[n - 1] + 1:
                n += 1
            run, order = order[:n], order[n:]
            begin = int(ends[run[0] - 1]) if run[0] > 0 else 0
            tokens = torch.tensor(self.map[begin : int(ends[run[-1]])], dtype=torch.uint16)
            at = 0
            for i in run:
                length = int(ends[i]) - begin - at
                found[i] = tokens[at : at + length]
                at += length
        return [found[i] for i in indices]

    def __getitem__(self, i):
        return self.__getitems__([i])[0]
