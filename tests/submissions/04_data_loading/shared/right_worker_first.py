import itertools
import random


class Shared(torch.utils.data.IterableDataset):
    def __init__(self, source, rank=0, world=1, seed=0):
        super().__init__()
        self.source, self.place, self.seed = source, (rank, world), seed
        self.set_epoch(0)

    def set_epoch(self, epoch):
        self.key = f"{self.seed} {epoch}"

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        rank, world = self.place
        first, step = (rank, world) if info is None else (info.id * world + rank, info.num_workers * world)
        order = list(range(len(self.source)))
        random.Random(self.key).shuffle(order)
        return map(self.source.__getitem__, itertools.islice(order, first, None, step))
