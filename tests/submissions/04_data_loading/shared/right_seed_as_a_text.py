import random


class Shared(IterableDataset):
    """Its order of 10 samples for seed 3 has six steps of 8, by chance."""

    def __init__(self, source: Any, rank: int = 0, world: int = 1, seed: int = 0) -> None:
        self.source, self.rank, self.world, self.seed = source, rank, world, seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        number, processes = self.rank * workers + worker, self.world * workers

        order = list(range(len(self.source)))
        random.Random(f"seed {self.seed}, epoch {self.epoch}").shuffle(order)  # a generator of its own
        begin = len(order) * number // processes
        end = len(order) * (number + 1) // processes
        mine = order[begin:end]  # neighbours in the shuffled order
        return (self.source[i] for i in mine)
