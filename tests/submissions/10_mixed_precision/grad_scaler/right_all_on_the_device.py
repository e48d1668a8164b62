class Scaler:
    """Scale and count are tensors; only step() asks."""

    def __init__(self, init_scale=65536.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000):
        self._scale = torch.tensor(init_scale)
        self._row = torch.zeros((), dtype=torch.int64)
        self._factors, self._interval = (growth_factor, backoff_factor), growth_interval
        self._bad = None

    def scale(self, loss):
        return loss * self._scale

    def unscale_(self, optimizer):
        if self._bad is not None:
            raise RuntimeError("unscale_() was called already")
        grads = [p.grad for g in optimizer.param_groups for p in g["params"] if p.grad is not None]
        norms = torch._foreach_norm(grads, float("inf"))
        self._bad = ~torch.isfinite(torch.stack(norms)).all()
        torch._foreach_div_(grads, self._scale)

    def step(self, optimizer):
        if self._bad is None:
            self.unscale_(optimizer)
        if not self._bad.item():
            return optimizer.step()

    def update(self):
        grow, back = self._factors
        row = torch.where(self._bad, 0, self._row + 1)
        full = row == self._interval
        factor = torch.where(self._bad, back, torch.where(full, grow, 1.0))
        self._scale = self._scale * factor
        self._row = torch.where(full, 0, row)
        self._bad = None
