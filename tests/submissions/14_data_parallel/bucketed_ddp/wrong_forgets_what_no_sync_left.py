# counts a parameter that the last backward did not use as zeros, whatever no_sync has collected: earns 2
class BucketedDDP(nn.Module):
    def __init__(self, model, bucket_bytes=25 * 2**20):
        super().__init__()
        self.model = model
        box = [model.state_dict()]
        dist.broadcast_object_list(box, 0)
        model.load_state_dict(box[0])
        self.buckets, self.bucket_of, room = [], {}, 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            if room <= 0:
                self.buckets.append([])
                room = bucket_bytes
            self.buckets[-1].append(p)
            self.bucket_of[p] = len(self.buckets) - 1
            room -= p.nbytes
            p.register_post_accumulate_grad_hook(self.ready)
        self.quiet = False
        self.again()

    def again(self):
        self.lacking, self.sent, self.came = [len(b) for b in self.buckets], [], set()

    def ready(self, p):
        if self.quiet:
            return
        self.came.add(p)
        self.lacking[self.bucket_of[p]] -= 1
        while len(self.sent) < len(self.buckets) and not self.lacking[len(self.sent)]:
            self.send()

    def send(self):
        grads = [p.grad if p in self.came else torch.zeros_like(p) for p in self.buckets[len(self.sent)]]
        flat = torch.cat([g.flatten() for g in grads])
        self.sent.append((flat, dist.all_reduce(flat, async_op=True)))

    def forward(self, *args, **kwargs):
        return self.model(*args, **kwargs)

    def finish(self):
        while len(self.sent) < len(self.buckets):
            self.send()
        for bucket, (flat, work) in zip(self.buckets, self.sent):
            work.wait()
            flat /= dist.get_world_size()
            for p, g in zip(bucket, flat.split([p.numel() for p in bucket])):
                p.grad = g.view_as(p)
        self.again()

    @contextmanager
    def no_sync(self):
        self.quiet = True
        yield
        self.quiet = False
