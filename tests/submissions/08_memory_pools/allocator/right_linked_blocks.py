class Block:
    def __init__(self, address, size, small, before=None, after=None):
        self.address, self.size, self.small, self.before, self.after = address, size, small, before, after
        self.used = False


class Allocator:
    """Blocks linked to their neighbours; one dictionary for what is in use, one set for what is free."""

    def __init__(self, cuda_malloc, cuda_free):
        self.take, self.give = cuda_malloc, cuda_free
        self.unused, self.live = set(), {}

    def malloc(self, nbytes):
        size = max(512, (nbytes + 511) // 512 * 512)
        small = size <= 1 << 20
        fitting = [b for b in self.unused if b.small == small and b.size >= size]
        block = min(fitting, key=lambda b: (b.size, b.address)) if fitting else self.segment(size, small)
        self.unused.discard(block)
        rest = block.size - size
        if rest > (1 << 20) or (small and rest >= 512):
            tail = Block(block.address + size, rest, small, block, block.after)
            if block.after:
                block.after.before = tail
            block.after, block.size = tail, size
            self.unused.add(tail)
        self.live[block.address] = block
        return block.address

    def segment(self, size, small):
        if small:
            wanted = 2 << 20
        elif size < 10 << 20:
            wanted = 20 << 20
        else:
            wanted = (size + (2 << 20) - 1) // (2 << 20) * (2 << 20)
        for attempt in (1, 2):
            address = self.take(wanted)
            if address is not None:
                return Block(address, wanted, small)
            if attempt == 1:
                self.empty_cache()
        raise MemoryError

    def free(self, address):
        block = self.live.pop(address)
        if block.before in self.unused:
            self.unused.discard(block.before)
            block.address, block.size = block.before.address, block.size + block.before.size
            block.before = block.before.before
            if block.before:
                block.before.after = block
        if block.after in self.unused:
            self.unused.discard(block.after)
            block.size += block.after.size
            block.after = block.after.after
            if block.after:
                block.after.before = block
        self.unused.add(block)

    def empty_cache(self):
        for block in [b for b in self.unused if not b.before and not b.after]:
            self.unused.discard(block)
            self.give(block.address)
