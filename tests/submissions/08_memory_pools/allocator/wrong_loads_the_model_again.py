# dishonest: a second copy of the course's model, loaded from its file: earns 0
import importlib.util, helpers.simulator.allocator.caching as c
spec=importlib.util.spec_from_file_location("helpers.simulator.allocator.mine", c.__file__)
m=importlib.util.module_from_spec(spec); spec.loader.exec_module(m)
from helpers.simulator.allocator.blocks import Driver
from helpers.simulator.allocator.caching import CachingAllocator
CachingAllocator=m.CachingAllocator
_malloc=CachingAllocator.malloc
from helpers.simulator.allocator import OutOfMemory
class Allocator:
    def __init__(self, cuda_malloc, cuda_free):
        class Mine(Driver):
            def malloc(self, size):
                a=cuda_malloc(size)
                sizes[a]=size
                return a
            def release(self, size):
                pass
        sizes={}
        self.sizes=sizes; self.cuda_free=cuda_free
        self.model=CachingAllocator(1<<60, history=False)
        self.model.reserved.driver=Mine(1<<60)
    def sync(self):
        now={s["address"] for s in self.model.snapshot()["segments"]}
        for a in [a for a in self.sizes if a is not None and a not in now]:
            self.cuda_free(a); del self.sizes[a]
    def malloc(self, n):
        try:
            r=_malloc(self.model,n)
        except OutOfMemory:
            self.sync()
            try: r=_malloc(self.model,n)
            except OutOfMemory: raise MemoryError
        self.sync()
        return r
    def free(self,a): self.model.free(a)
    def empty_cache(self): self.model.empty_cache(); self.sync()
