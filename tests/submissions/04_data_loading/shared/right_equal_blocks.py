class Shared(IterableDataset):
    """Blocks of the shuffled order, in place of every k-th."""

    def __init__(self, source, rank=0, world=1, seed=0):
        self.source, self.rank, self.world, self.seed, self.epoch = source, rank, world, seed, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        w, n = (info.id, info.num_workers) if info else (0, 1)
        order = np.random.default_rng([self.seed, self.epoch]).permutation(len(self.source))
        for i in np.array_split(order, n * self.world)[w + n * self.rank]:
            yield self.source[int(i)]
