# PyTorch's own GradScaler, of which two operators are written anew: earns 0
from collections import defaultdict
import torch
from torch.amp.grad_scaler import OptState


class Scaler(torch.amp.GradScaler):
    def __init__(self, init_scale=65536.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000):
        super().__init__("cpu", init_scale, growth_factor, backoff_factor, growth_interval)
        self.how, self.bad = (growth_factor, backoff_factor, growth_interval), None

    def _unscale_grads_(self, optimizer, inv_scale, found_inf, allow_fp16):
        grads = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        torch._foreach_mul_(grads, inv_scale)
        self.bad = torch.stack([g.isfinite().all() for g in grads]).all().logical_not().float()
        return {torch.device("cpu"): self.bad}

    def update(self, new_scale=None):
        growth, backoff, interval = self.how
        tracker, bad = self._growth_tracker, self.bad.bool()
        tracker.copy_(torch.where(bad, 0, tracker + 1))
        grows = tracker == interval
        factor = torch.where(bad, backoff, torch.where(grows, growth, 1.0))
        self._scale.mul_(factor)
        tracker.mul_(~grows)
        self._per_optimizer_states = defaultdict(lambda: {"stage": OptState.READY, "found_inf_per_device": {}})
