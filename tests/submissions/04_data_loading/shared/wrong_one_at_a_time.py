# the place in the order lies on self: a second iterator begun meanwhile takes samples from the first: earns 0
class Shared(IterableDataset):
    def __init__(self, source, rank=0, world=1, seed=0):
        self.source, self.rank, self.world, self.seed = source, rank, world, seed
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        info = get_worker_info()
        me, many = (info.id, info.num_workers) if info else (0, 1)
        g = torch.Generator().manual_seed(1000 * self.seed + self.epoch)
        order = torch.randperm(len(self.source), generator=g).tolist()
        self.mine = order[self.rank * many + me :: self.world * many]
        return self

    def __next__(self):
        if not self.mine:
            raise StopIteration
        return self.source[self.mine.pop(0)]
