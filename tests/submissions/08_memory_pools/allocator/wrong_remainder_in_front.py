# leaves the remainder in front of the block: earns 0
class Allocator:
    """A caching allocator for one stream of one device. All sizes and addresses are whole numbers of bytes.

    cuda_malloc(nbytes) returns the address of a new segment, None where the device is too full for it.
    cuda_free(address) takes a whole segment back.

    - A request (nbytes ≥ 1) is rounded up to a multiple of 512. Rounded sizes up to 1 MiB are of the small
      pool, larger ones of the large pool; a segment belongs to the pool that it was made for.
    - It gets the smallest free block of its pool that fits; of equally small ones that at the lowest address.
    - If none fits: a segment of 2 MiB (small pool), of 20 MiB (large pool, below 10 MiB), else of the rounded
      size, rounded up again to a multiple of 2 MiB. If cuda_malloc returns None: empty_cache(), and once more.
    - What the block has beyond the rounded size becomes a free block, behind it, if that is at least 512 bytes
      (small pool) or more than 1 MiB (large pool). Else it stays with the block.
    - A block that is freed merges with free neighbours in its segment. Segments stay.
    """

    def __init__(self, cuda_malloc, cuda_free) -> None:
        self.cuda_malloc, self.cuda_free = cuda_malloc, cuda_free
        self.segments: list[
            tuple[bool, list[list]]
        ] = []  # small?, blocks by address: [address, size, in use]

    def malloc(self, nbytes: int) -> int:
        """The address of nbytes that nobody else has. MemoryError where they cannot be had."""
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
            blocks.insert(blocks.index(block), [block[0], rest, False])
            block[0] += rest
            block[1] = size
        block[2] = True
        return block[0]

    def free(self, address: int) -> None:
        """Give back what malloc returned."""
        for _, blocks in self.segments:
            for i, block in enumerate(blocks):
                if block[0] == address:
                    block[2] = False
                    for left in (i, i - 1):
                        if 0 <= left < len(blocks) - 1 and not (blocks[left][2] or blocks[left + 1][2]):
                            blocks[left][1] += blocks.pop(left + 1)[1]
                    return

    def empty_cache(self) -> None:
        """Give every segment in which nothing is in use back to the device."""
        for segment in list(self.segments):
            blocks = segment[1]
            if len(blocks) == 1 and not blocks[0][2]:
                self.segments.remove(segment)
                self.cuda_free(blocks[0][0])
