# p.grad becomes another tensor; whoever holds the old one has scaled gradients: earns 0
class Scaler:
    """Loss scaling as torch.amp.GradScaler does it, for one optimizer.

    init_scale: the first scale. After a step with an infinity or NaN among the gradients: scale · backoff_factor.
    After growth_interval good steps in a row: scale · growth_factor, and counting begins again, as it
    does after a back-off.

    Right when weights, momenta, scales and skipped steps are those of torch.amp.GradScaler. Budget: the CPU
    waits once for each training step. torch's own scaler and its `_amp_` operators are for later.
    """

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
        """The loss times the scale."""
        return loss * self.value

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        """Divide the gradients of the optimizer's parameters by the scale, in place. Parameters without one are left out.

        RuntimeError if they are unscaled already since the last update().
        """
        if self.finite is not None:
            raise RuntimeError("the gradients are unscaled already")
        grads = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        self.finite = torch.stack([g.isfinite().all() for g in grads]).all()
        for p in (p for group in optimizer.param_groups for p in group["params"] if p.grad is not None):
            p.grad = p.grad / self.value

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """optimizer.step(), or nothing at all if a gradient is not finite. Unscales first, unless that was done."""
        if self.finite is None:
            self.unscale_(optimizer)
        self.ok = bool(self.finite)
        if self.ok:
            optimizer.step()

    def update(self) -> None:
        """Choose the scale of the next step. Called once after each step()."""
        self.finite = None
        self.good = self.good + 1 if self.ok else 0
        if not self.ok:
            self.value *= self.backoff
        elif self.good == self.interval:
            self.value, self.good = self.value * self.growth, 0
