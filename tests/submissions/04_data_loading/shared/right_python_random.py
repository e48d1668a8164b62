class Shared(IterableDataset):
    def __init__(self, source, rank=0, world=1, seed=0):
        self.source, self.rank, self.world, self.seed, self.epoch = source, rank, world, seed, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        info = get_worker_info()
        w, n = (info.id, info.num_workers) if info else (0, 1)
        k, of = self.rank * n + w, self.world * n
        order = list(range(len(self.source)))
        random = __import__("random").Random(1_000_003 * self.seed + self.epoch)
        random.shuffle(order)
        yield from map(self.source.__getitem__, order[k::of])
