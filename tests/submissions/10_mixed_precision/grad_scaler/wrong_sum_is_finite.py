# asks whether the sum is finite: large finite gradients overflow in it: earns 2
class Scaler:
    def __init__(self, init_scale=65536.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000):
        self.value, self.interval = init_scale, growth_interval
        self.growth, self.backoff = growth_factor, backoff_factor
        self.good, self.finite, self.ok = 0, None, True

    def scale(self, loss):
        return loss * self.value

    def unscale_(self, optimizer):
        if self.finite is not None:
            raise RuntimeError("unscaled already")
        grads = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        self.finite = torch.stack([g.sum() for g in grads]).sum().isfinite()
        for g in grads:
            g.mul_(1 / self.value)

    def step(self, optimizer):
        if self.finite is None:
            self.unscale_(optimizer)
        self.ok = bool(self.finite)
        if self.ok:
            optimizer.step()

    def update(self):
        self.finite = None
        self.good = self.good + 1 if self.ok else 0
        if not self.ok:
            self.value = self.value * self.backoff
        elif self.good == self.interval:
            self.value, self.good = self.value * self.growth, 0
