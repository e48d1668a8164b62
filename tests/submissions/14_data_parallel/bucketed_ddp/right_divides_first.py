# divides before it sends, and coalesces the gradients themselves
class BucketedDDP(nn.Module):
    def __init__(self, model, bucket_bytes=25 * 2**20):
        super().__init__()
        self.model, self.silent = model, False
        for t in (*model.parameters(), *model.buffers()):
            flat = torch.empty(t.shape, dtype=t.dtype).copy_(t.data)
            dist.broadcast(flat, 0)
            t.data.copy_(flat)
        self.plan, size = [], bucket_bytes
        for p in reversed(list(model.parameters())):
            if p.requires_grad:
                if size >= bucket_bytes:
                    self.plan.append([])
                    size = 0
                self.plan[-1].append(p)
                size += p.nbytes
                p.register_post_accumulate_grad_hook(self.mark)
        self.seen, self.pending = set(), []

    def mark(self, p):
        if not self.silent:
            self.seen.add(p)
            while len(self.pending) < len(self.plan) and self.seen.issuperset(self.plan[len(self.pending)]):
                self.go()

    def go(self):
        bucket = self.plan[len(self.pending)]
        flat = bucket[0].new_zeros(sum(p.numel() for p in bucket))
        for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
            if p.grad is not None:
                part.add_(p.grad.flatten(), alpha=1 / dist.get_world_size())
        self.pending.append((flat, dist.all_reduce(flat, op=dist.ReduceOp.SUM, async_op=True)))

    def forward(self, *a, **k):
        return self.model(*a, **k)

    def finish(self):
        while len(self.pending) < len(self.plan):
            self.go()
        for bucket, (flat, work) in zip(self.plan, self.pending):
            work.wait()
            at = 0
            for p in bucket:
                p.grad = flat[at : at + p.numel()].clone().view(p.shape)
                at += p.numel()
        self.seen.clear()
        self.pending.clear()

    @contextmanager
    def no_sync(self):
        self.silent = True
        try:
            yield
        finally:
            self.silent = False
