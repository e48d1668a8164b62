class Scaler:
    """unscale_ only divides; step looks whether anything is not finite: clipping turns infinity into NaN, which shows too."""

    def __init__(self, init_scale=65536.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000):
        self.s, self.up, self.down, self.every = init_scale, growth_factor, backoff_factor, growth_interval
        self.done, self.row, self.accident = False, 0, False

    def _grads(self, optimizer):
        for group in optimizer.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    yield p.grad

    def scale(self, loss):
        return self.s * loss

    def unscale_(self, optimizer):
        if self.done:
            raise RuntimeError("twice")
        self.done = True
        for g in self._grads(optimizer):
            g /= self.s

    def step(self, optimizer):
        if not self.done:
            self.unscale_(optimizer)
        total = sum((g * 0).sum() for g in self._grads(optimizer))  # 0, or NaN
        self.accident = total.item() != 0
        if not self.accident:
            optimizer.step()

    def update(self):
        self.done = False
        if self.accident:
            self.s, self.row = self.s * self.down, 0
            return
        self.row += 1
        if self.row == self.every:
            self.s, self.row = self.s * self.up, 0
