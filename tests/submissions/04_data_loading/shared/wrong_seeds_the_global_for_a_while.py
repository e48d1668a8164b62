# puts the global generator back after the last sample only: until then the training draws from a generator seeded anew, and what it drew is undone: earns 1
class Shared(IterableDataset):
    def __init__(self, source, rank=0, world=1, seed=0):
        self.source, self.rank, self.world, self.seed, self.epoch = source, rank, world, seed, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        info = get_worker_info()
        w, n = (info.id, info.num_workers) if info else (0, 1)
        state = torch.get_rng_state()
        torch.manual_seed(1_000_003 * self.seed + self.epoch)
        order = torch.randperm(len(self.source)).tolist()
        for i in order[self.rank * n + w :: self.world * n]:
            yield self.source[i]
        torch.set_rng_state(state)
