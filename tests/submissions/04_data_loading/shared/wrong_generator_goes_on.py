# a generator kept in the data set goes on from one iteration to the next: earns 0
class Shared(IterableDataset):
    def __init__(self, source, rank=0, world=1, seed=0):
        self.source, self.rank, self.world, self.seed = source, rank, world, seed
        self.epoch = 0
        self.generator = torch.Generator().manual_seed(seed)

    def set_epoch(self, epoch):
        self.epoch = epoch
        self.generator = torch.Generator().manual_seed(self.seed + epoch)

    def __iter__(self):
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        order = torch.randperm(len(self.source), generator=self.generator).tolist()
        for i in order[self.rank * workers + worker :: self.world * workers]:
            yield self.source[i]

    def __getstate__(self):
        return self.__dict__ | {"generator": self.generator.get_state()}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self.generator = torch.Generator()
        self.generator.set_state(state["generator"])
