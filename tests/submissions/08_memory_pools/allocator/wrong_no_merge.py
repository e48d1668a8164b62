# freed blocks are not merged: earns 0
class Allocator:
    def __init__(self, cuda_malloc, cuda_free) -> None:
        self.cuda_malloc, self.cuda_free = cuda_malloc, cuda_free
        self.segments: list[
            tuple[bool, list[list]]
        ] = []  # small?, blocks by address: [address, size, in use]

    def malloc(self, nbytes: int) -> int:
        size = -(-nbytes // 512) * 512
        small = size <= MIB
        free = [
            (block[1], block[0], blocks, block)
            for of_small, blocks in self.segments
            for block in blocks
            if of_small == small and not block[2] and block[1] >= size
        ]
        if free:
            *_, blocks, block = min(free, key=lambda found: found[:2])
        else:
            wanted = 2 * MIB if small else 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
            address = self.cuda_malloc(wanted)
            if address is None:
                self.empty_cache()
                address = self.cuda_malloc(wanted)
            if address is None:
                raise MemoryError(f"no room for {nbytes} bytes")
            block = [address, wanted, False]
            blocks = [block]
            self.segments.append((small, blocks))
        rest = block[1] - size
        if rest >= 512 if small else rest > MIB:
            blocks.insert(blocks.index(block) + 1, [block[0] + size, rest, False])
            block[1] = size
        block[2] = True
        return block[0]

    def free(self, address: int) -> None:
        for _, blocks in self.segments:
            for i, block in enumerate(blocks):
                if block[0] == address:
                    block[2] = False
                    return

    def empty_cache(self) -> None:
        for segment in list(self.segments):
            blocks = segment[1]
            if len(blocks) == 1 and not blocks[0][2]:
                self.segments.remove(segment)
                self.cuda_free(blocks[0][0])
