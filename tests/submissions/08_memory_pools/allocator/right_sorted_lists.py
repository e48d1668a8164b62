import bisect


class Allocator:
    """Two sorted lists of (size, address); segments by address, so that neighbours are found by arithmetic."""

    def __init__(self, cuda_malloc, cuda_free):
        self.cuda_malloc, self.cuda_free = cuda_malloc, cuda_free
        self.free_lists = {True: [], False: []}
        self.by_start, self.by_end = {}, {}  # free blocks: start → size, end → size
        self.segments = {}  # start → (size, small)
        self.used = {}  # start → (size, segment)

    def add(self, start, size, small):
        bisect.insort(self.free_lists[small], (size, start))
        self.by_start[start] = size
        self.by_end[start + size] = size

    def drop(self, start, size, small):
        self.free_lists[small].remove((size, start))
        del self.by_start[start], self.by_end[start + size]

    def home(self, address):
        return next(s for s, (size, _) in self.segments.items() if s <= address < s + size)

    def malloc(self, nbytes):
        size = -(-nbytes // 512) * 512
        small = size <= 2**20
        row = self.free_lists[small]
        place = bisect.bisect_left(row, (size, 0))
        if place == len(row):
            self.grow(size, small)
            place = bisect.bisect_left(row, (size, 0))
        whole, start = row[place]
        self.drop(start, whole, small)
        rest = whole - size
        if rest >= 512 if small else rest > 2**20:
            self.add(start + size, rest, small)
            whole = size
        self.used[start] = (whole, self.home(start))
        return start

    def grow(self, size, small):
        wanted = 2**21 if small else 20 * 2**20 if size < 10 * 2**20 else -(-size // 2**21) * 2**21
        start = self.cuda_malloc(wanted)
        if start is None:
            self.empty_cache()
            start = self.cuda_malloc(wanted)
        if start is None:
            raise MemoryError(wanted)
        self.segments[start] = (wanted, small)
        self.add(start, wanted, small)

    def free(self, address):
        size, home = self.used.pop(address)
        length, small = self.segments[home]
        if address != home and address in self.by_end:
            before = self.by_end[address]
            self.drop(address - before, before, small)
            address, size = address - before, size + before
        if address + size != home + length and address + size in self.by_start:
            after = self.by_start[address + size]
            self.drop(address + size, after, small)
            size += after
        self.add(address, size, small)

    def empty_cache(self):
        for start, (size, small) in list(self.segments.items()):
            if self.by_start.get(start) == size:
                self.drop(start, size, small)
                del self.segments[start]
                self.cuda_free(start)
