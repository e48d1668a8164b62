# dishonest: the course's own model, with cudaMalloc put in for its driver: earns 0
from helpers.simulator.allocator.blocks import Driver
from helpers.simulator.allocator.caching import CachingAllocator


class Allocator:
    def __init__(self, cuda_malloc, cuda_free):
        class Mine(Driver):
            def malloc(self, size):
                return cuda_malloc(size)

            def release(self, size):
                pass

        self.model = CachingAllocator(1 << 60)
        self.model.reserved.driver = Mine(1 << 60)
        self.malloc, self.free, self.empty_cache = self.model.malloc, self.model.free, self.model.empty_cache
