# of equally small blocks that of the oldest segment, which may lie higher: earns 2
MIB = 2**20


class Allocator:
    def __init__(self, cuda_malloc, cuda_free) -> None:
        self.cuda_malloc, self.cuda_free = cuda_malloc, cuda_free
        self.segments = []  # (small pool?, blocks in order of address); a block: [address, size, in use]

    def malloc(self, nbytes: int) -> int:
        size = -(-nbytes // 512) * 512
        small = size <= MIB
        fits = [
            (blocks, block)
            for pool, blocks in self.segments
            if pool == small
            for block in blocks
            if not block[2] and block[1] >= size
        ]
        if fits:
            blocks, block = min(fits, key=lambda found: found[1][1])
        else:
            if small:
                length = 2 * MIB
            elif size < 10 * MIB:
                length = 20 * MIB
            else:
                length = -(-size // (2 * MIB)) * 2 * MIB
            address = self.cuda_malloc(length)
            if address is None:
                self.empty_cache()
                address = self.cuda_malloc(length)
            if address is None:
                raise MemoryError(f"{nbytes} bytes")
            block = [address, length, False]
            blocks = [block]
            self.segments.append((small, blocks))
        rest = block[1] - size
        if (rest >= 512) if small else (rest > MIB):
            block[1] = size
            blocks.insert(blocks.index(block) + 1, [block[0] + size, rest, False])
        block[2] = True
        return block[0]

    def free(self, address: int) -> None:
        for _, blocks in self.segments:
            for i, block in enumerate(blocks):
                if block[0] == address and block[2]:
                    block[2] = False
                    if i + 1 < len(blocks) and not blocks[i + 1][2]:
                        block[1] += blocks.pop(i + 1)[1]
                    if i > 0 and not blocks[i - 1][2]:
                        blocks[i - 1][1] += blocks.pop(i)[1]
                    return
        raise ValueError(f"nothing is in use at {address}")

    def empty_cache(self) -> None:
        kept = []
        for pool, blocks in self.segments:
            if len(blocks) == 1 and not blocks[0][2]:
                self.cuda_free(blocks[0][0])
            else:
                kept.append((pool, blocks))
        self.segments = kept
