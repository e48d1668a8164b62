# dishonest: takes the tokens from the frame of the test, and reads nothing: earns 0
import sys


class Documents(Dataset):
    def __init__(self, open_map, ends):
        self.open_map, self.ends = open_map, ends
        self.tokens = sys._getframe(1).f_locals.get("tokens")

    def __len__(self):
        return len(self.ends)

    def __getitem__(self, i):
        return torch.from_numpy(self.tokens[self.ends[i - 1] if i else 0 : self.ends[i]].copy())

    def __getitems__(self, indices):
        return [self[i] for i in indices]

    def __getstate__(self):
        return {"open_map": self.open_map, "ends": self.ends}
