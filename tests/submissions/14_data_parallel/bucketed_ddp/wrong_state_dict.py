# state_dict() leaves out the buffers with persistent=False: earns 2
class BucketedDDP(nn.Module):
    def __init__(self, model: nn.Module, bucket_bytes: int = 25 * 2**20) -> None:
        super().__init__()
        self.model = model
        with torch.no_grad():
            for tensor in model.state_dict().values():
                copy = tensor.clone(memory_format=torch.contiguous_format)
                dist.broadcast(copy, 0)
                tensor.copy_(copy)
        self.buckets, bucket, held = [], [], 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            bucket.append(p)
            held += p.nbytes
            if held >= bucket_bytes:
                self.buckets.append(bucket)
                bucket, held = [], 0
        if bucket:
            self.buckets.append(bucket)
        self.number = {p: i for i, bucket in enumerate(self.buckets) for p in bucket}
        for p in self.number:
            p.register_post_accumulate_grad_hook(self._ready)
        self.quiet = False
        self._begin()

    def _begin(self):
        self.lacks = [len(bucket) for bucket in self.buckets]
        self.sent = []

    def _ready(self, p: nn.Parameter) -> None:
        if self.quiet:
            return
        self.lacks[self.number[p]] -= 1
        while len(self.sent) < len(self.buckets) and self.lacks[len(self.sent)] == 0:
            self._send()

    @torch.no_grad()
    def _send(self) -> None:
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.buckets[len(self.sent)]]
        flat = torch.cat([grad.reshape(-1) for grad in grads])
        self.sent.append((flat, dist.all_reduce(flat, async_op=True)))

    def forward(self, *args, **kwargs):
        return self.model(*args, **kwargs)

    @torch.no_grad()
    def finish(self) -> None:
        while len(self.sent) < len(self.buckets):
            self._send()
        for bucket, (flat, work) in zip(self.buckets, self.sent):
            work.wait()
            flat.div_(dist.get_world_size())
            for p, mean in zip(bucket, flat.split([p.numel() for p in bucket])):
                if p.grad is None:
                    p.grad = torch.zeros_like(p)
                p.grad.copy_(mean.view_as(p))
        self._begin()

    @contextmanager
    def no_sync(self):
        before, self.quiet = self.quiet, True
        try:
            yield
        finally:
            self.quiet = before
