# NumPy's own generator object, seeded by the pair; dealt like cards.
class Shared(IterableDataset):
    def __init__(self, source, rank=0, world=1, seed=0):
        self.source, self.rank, self.world, self.seed = source, rank, world, seed
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        worker = get_worker_info()
        hands = self.world * (worker.num_workers if worker else 1)
        hand = self.rank * (worker.num_workers if worker else 1) + (worker.id if worker else 0)
        deck = np.random.default_rng((self.seed, self.epoch)).permutation(len(self.source))
        return (self.source[int(card)] for place, card in enumerate(deck) if place % hands == hand)
