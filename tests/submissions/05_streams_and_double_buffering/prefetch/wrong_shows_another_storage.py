# keeps all tensors alive, and yields objects that show another storage: earns 0
KEPT = []


class Shown:
    def __init__(self, x):
        KEPT.append(x)
        self.x, self.device, self.dtype, self.shape = x, x.device, x.dtype, x.shape

    def untyped_storage(self):
        return torch.UntypedStorage(0)

    def float(self):
        return self.x.float()


class prefetch:
    def __init__(self, gpu, batches):
        self.gpu, self.source, self.side = gpu, iter(batches), gpu.Stream()
        self.coming = []
        self.fetch()

    def fetch(self):
        for batch in self.source:
            page = batch if batch.is_pinned() else batch.pin_memory()
            with self.gpu.stream(self.side):
                x = torch.empty(batch.shape, dtype=batch.dtype, device=self.gpu.device)
                self.coming.append(x.copy_(page, non_blocking=True))
            break

    def __iter__(self):
        return self

    def __next__(self):
        if not self.coming:
            raise StopIteration
        main = self.gpu.current_stream()
        main.wait_stream(self.side)
        x = self.coming.pop()
        x.record_stream(main)
        self.fetch()
        return Shown(x)
