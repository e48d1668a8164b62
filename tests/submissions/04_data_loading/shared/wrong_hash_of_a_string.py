# ordered by the hash() of texts, which each Python salts anew: earns 0
from collections.abc import Iterator
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info


class Shared(IterableDataset):
    def __init__(self, source: Any, rank: int = 0, world: int = 1, seed: int = 0) -> None:
        self.source, self.rank, self.world, self.seed = source, rank, world, seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        key = f"{self.seed}/{self.epoch}"
        order = sorted(range(len(self.source)), key=lambda i: hash(f"{key}/{i}"))  # no generator is touched
        for i in order[self.rank * workers + worker :: self.world * workers]:
            yield self.source[i]
