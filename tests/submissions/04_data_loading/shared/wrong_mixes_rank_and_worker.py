# numbers the workers by rank + worker, so that two have the same number: earns 0
class Shared(IterableDataset):
    def __init__(self, source, rank=0, world=1, seed=0):
        self.source, self.rank, self.world, self.seed, self.epoch = source, rank, world, seed, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def order(self):
        g = torch.Generator().manual_seed(self.seed + self.epoch)
        return torch.randperm(len(self.source), generator=g).tolist()

    def __iter__(self):
        info = get_worker_info()
        w, n = (info.id, info.num_workers) if info else (0, 1)
        for i in self.order()[self.rank + w :: self.world * n]:
            yield self.source[i]
