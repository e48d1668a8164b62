# begins elsewhere in each epoch, and shuffles nothing: earns 1
class Shared(IterableDataset):
    def __init__(self, source, rank=0, world=1, seed=0):
        self.source, self.rank, self.world, self.seed = source, rank, world, seed
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        n = len(self.source)
        order = [(i + 7 + self.seed + self.epoch) % n for i in range(n)]
        for i in order[self.rank * workers + worker :: self.world * workers]:
            yield self.source[i]
