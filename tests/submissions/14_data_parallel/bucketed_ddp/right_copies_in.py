# a flat buffer for each bucket, filled as gradients come; futures divide
class BucketedDDP(nn.Module):
    def __init__(self, model, bucket_bytes=25 * 2**20):
        super().__init__()
        self.model, self.on = model, True
        with torch.no_grad():
            for t in model.state_dict().values():
                same = t.contiguous()
                dist.broadcast(same, src=0)
                t.copy_(same)
        groups, held = [[]], 0
        for p in list(model.parameters())[::-1]:
            if not p.requires_grad:
                continue
            if held >= bucket_bytes:
                groups, held = [*groups, []], 0
            groups[-1].append(p)
            held += p.numel() * 4
        self.groups = [g for g in groups if g]
        self.flats = [g[0].new_zeros(sum(p.numel() for p in g)) for g in self.groups]
        for i, group in enumerate(self.groups):
            for p, view in zip(group, self.flats[i].split([p.numel() for p in group])):
                p.register_post_accumulate_grad_hook(lambda p, i=i, view=view: self.came(p, i, view))
        self.reset()

    def reset(self):
        self.come = [0] * len(self.groups)
        self.works = []
        for flat in self.flats:
            flat.zero_()

    def came(self, p, i, view):
        if not self.on:
            return
        view.copy_(p.grad.flatten())
        self.come[i] += 1
        while len(self.works) < len(self.groups) and self.come[len(self.works)] == len(self.groups[len(self.works)]):
            self.launch()

    def launch(self):
        self.works.append(dist.all_reduce(self.flats[len(self.works)], async_op=True))

    def forward(self, *args, **kwargs):
        return self.model(*args, **kwargs)

    def finish(self):
        for i in range(len(self.works), len(self.groups)):
            for p, view in zip(self.groups[i], self.flats[i].split([p.numel() for p in self.groups[i]])):
                if p.grad is not None:
                    view.copy_(p.grad.flatten())
            self.launch()
        for work, group, flat in zip(self.works, self.groups, self.flats):
            work.wait()
            for p, view in zip(group, flat.split([p.numel() for p in group])):
                p.grad = (view / dist.get_world_size()).reshape(p.shape)
        self.reset()

    @contextmanager
    def no_sync(self):
        before, self.on = self.on, False
        try:
            yield
        finally:
            self.on = before
