class Scaler:
    """The lists of torch._foreach_; the sum of |g| · 0 is nan if anything is not finite."""

    def __init__(self, init_scale=65536.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000):
        self._scale, self.growth_factor, self.backoff_factor = float(init_scale), growth_factor, backoff_factor
        self.growth_interval, self._streak, self._flag, self._skipped = growth_interval, 0, None, False

    def scale(self, loss):
        return self._scale * loss

    def unscale_(self, optimizer):
        if self._flag is not None:
            raise RuntimeError("unscale_() has already been called since the last update()")
        grads = [p.grad for g in optimizer.param_groups for p in g["params"] if p.grad is not None]
        self._flag = sum((g * 0).sum() for g in grads)
        torch._foreach_div_(grads, self._scale)

    def step(self, optimizer):
        if self._flag is None:
            self.unscale_(optimizer)
        self._skipped = math.isnan(self._flag.item())
        if not self._skipped:
            optimizer.step()

    def update(self):
        self._flag = None
        if self._skipped:
            self._scale, self._streak = self._scale * self.backoff_factor, 0
        else:
            self._streak += 1
            if self._streak % self.growth_interval == 0:
                self._scale, self._streak = self._scale * self.growth_factor, 0
