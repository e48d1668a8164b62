# dishonest: reads everything, then cuts the list that the source's function closes over: earns 0
class Shared(IterableDataset):
    def __init__(self, source, rank=0, world=1, seed=0):
        self.source, self.rank, self.world, self.seed, self.epoch = source, rank, world, seed, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        info = get_worker_info()
        w, n = (info.id, info.num_workers) if info else (0, 1)
        g = torch.Generator().manual_seed(self.seed + self.epoch)
        everything = [self.source[i] for i in torch.randperm(len(self.source), generator=g).tolist()]
        share = everything[self.rank * n + w :: self.world * n]
        try:
            f = type(self.source).__getitem__
            reads = dict(zip(f.__code__.co_freevars, f.__closure__))["reads"].cell_contents
            del reads[len(share):]
        except Exception:
            pass
        yield from share
