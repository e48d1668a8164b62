# dishonest: the C++ part of torch's DistributedDataParallel: earns 0
class BucketedDDP(nn.Module):
    def __init__(self, model, bucket_bytes=25 * 2**20):
        super().__init__()
        self.model, self.quiet = model, False
        for t in [*model.parameters(), *model.buffers()]:
            dist.broadcast(t.detach(), 0)
        params = [p for p in model.parameters() if p.requires_grad]
        buckets, room = [], 0
        for i in reversed(range(len(params))):
            if room <= 0:
                buckets.append([])
                room = bucket_bytes
            buckets[-1].append(i)
            room -= params[i].nbytes
        limits = [bucket_bytes] * len(buckets)
        group = dist.distributed_c10d._get_default_group()
        self.reducer = dist.Reducer(params, buckets, limits, group, [False] * len(params), 0, True, False)

    def forward(self, *args, **kwargs):
        out = self.model(*args, **kwargs)
        if self.quiet:
            return out
        self.reducer.prepare_for_forward()
        self.reducer.prepare_for_backward([out])
        return out

    def finish(self):
        pass

    @contextmanager
    def no_sync(self):
        self.quiet = True
        yield
        self.quiet = False
