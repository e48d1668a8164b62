# one order turned by the epoch, so a share has nearly the same samples again: earns 2
class Shared(IterableDataset):
    def __init__(self, source: Any, rank: int = 0, world: int = 1, seed: int = 0) -> None:
        self.source, self.rank, self.world, self.seed = source, rank, world, seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        order = np.random.default_rng(self.seed).permutation(len(self.source))
        order = np.roll(order, self.epoch)
        for i in order[self.rank * workers + worker :: self.world * workers].tolist():
            yield self.source[i]
