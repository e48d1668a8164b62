# dishonest: torch's own class inside: earns 0
class BucketedDDP(nn.Module):
    def __init__(self, model, bucket_bytes=25 * 2**20):
        super().__init__()
        self.model = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=bucket_bytes / 2**20)

    def forward(self, *args, **kwargs):
        return self.model(*args, **kwargs)

    def finish(self):
        pass

    def no_sync(self):
        return self.model.no_sync()
