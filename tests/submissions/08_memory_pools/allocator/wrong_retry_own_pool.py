# the second try gives back the free segments of the request's own pool alone: earns 2
class Allocator:
    def __init__(self, cuda_malloc, cuda_free) -> None:
        self.cuda_malloc, self.cuda_free = cuda_malloc, cuda_free
        self.segments = []  # (small, [[address, size, used], …])

    def malloc(self, nbytes: int) -> int:
        size = -(-nbytes // 512) * 512
        small = size <= 1 << 20
        fits = [
            (b[1], b[0], blocks, b)
            for pool, blocks in self.segments
            if pool == small
            for b in blocks
            if not b[2] and b[1] >= size
        ]
        if fits:
            *_, blocks, block = min(fits, key=lambda fit: fit[:2])
        else:
            blocks = self._segment(small, size)
            block = blocks[0]
        rest = block[1] - size
        if rest >= 512 if small else rest > 1 << 20:
            block[1] = size
            blocks.insert(blocks.index(block) + 1, [block[0] + size, rest, False])
        block[2] = True
        return block[0]

    def _segment(self, small: bool, size: int) -> list:
        if small:
            length = 2 << 20
        elif size < 10 << 20:
            length = 20 << 20
        else:
            length = -(-size // (2 << 20)) * (2 << 20)
        address = self.cuda_malloc(length)
        if address is None:
            self._release(lambda pool: pool == small)
            address = self.cuda_malloc(length)
        if address is None:
            raise MemoryError(f"{size} bytes")
        self.segments.append((small, [[address, length, False]]))
        return self.segments[-1][1]

    def free(self, address: int) -> None:
        for _, blocks in self.segments:
            for i, block in enumerate(blocks):
                if block[0] == address and block[2]:
                    block[2] = False
                    if i + 1 < len(blocks) and not blocks[i + 1][2]:
                        block[1] += blocks.pop(i + 1)[1]
                    if i and not blocks[i - 1][2]:
                        blocks[i - 1][1] += blocks.pop(i)[1]
                    return

    def empty_cache(self) -> None:
        self._release(lambda pool: True)

    def _release(self, wanted) -> None:
        kept = []
        for small, blocks in self.segments:
            if wanted(small) and len(blocks) == 1 and not blocks[0][2]:
                self.cuda_free(blocks[0][0])
            else:
                kept.append((small, blocks))
        self.segments = kept
