# runs of neighbours, handed on from process to process with each epoch, shuffled inside: earns 1
class Shared(IterableDataset):
    def __init__(self, source, rank=0, world=1, seed=0):
        self.source, self.rank, self.world, self.seed, self.epoch = source, rank, world, seed, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        info = get_worker_info()
        w, n = (info.id, info.num_workers) if info else (0, 1)
        k, of = self.rank * n + w, self.world * n
        blocks = np.array_split(np.arange(len(self.source)), of)
        mine = blocks[(k + self.epoch + self.seed) % of]
        for i in np.random.default_rng([self.seed, self.epoch]).permutation(mine):
            yield self.source[int(i)]
