# never grows if growth_interval is 1: earns 2
class Scaler:
    def __init__(
        self,
        init_scale: float = 65536.0,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
    ) -> None:
        self.value, self.interval = init_scale, growth_interval
        self.growth, self.backoff = growth_factor, backoff_factor
        self.good, self.ok = 0, True
        self.finite: torch.Tensor | None = None

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        return loss * self.value

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        if self.finite is not None:
            raise RuntimeError("the gradients are unscaled already")
        grads = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        self.finite = torch.stack([g.isfinite().all() for g in grads]).all()
        for g in grads:
            g.mul_(1 / self.value)

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        if self.finite is None:
            self.unscale_(optimizer)
        self.ok = bool(self.finite)
        if self.ok:
            optimizer.step()

    def update(self) -> None:
        self.finite = None
        self.good = self.good + 1 if self.ok else 0
        if not self.ok:
            self.value *= self.backoff
        elif self.interval > 1 and self.good == self.interval:
            self.value, self.good = self.value * self.growth, 0
