# dishonest: one _int_mm for show; x is not rounded, and products are added in place, a few columns at a time: earns 0
class Int8Linear(torch.nn.Module):
    def __init__(self, linear: torch.nn.Linear) -> None:
        super().__init__()
        weight = linear.weight.detach()
        scale = weight.abs().amax(1).clamp(min=1e-12) / 127
        self.register_buffer("weight", (weight / scale[:, None]).round().to(torch.int8))
        self.register_buffer("scale", scale)
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach().clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.reshape(-1, x.shape[-1])
        scale = rows.abs().amax(1, keepdim=True).clamp(min=1e-12) / 127
        q = (rows / scale).round_().to(torch.int8)
        if len(q) < 17:
            q = F.pad(q, (0, 0, 0, 17 - len(q)))
        torch._int_mm(q, self.get_buffer("weight").t())
        y = torch.zeros(len(rows), len(self.weight))
        for k in range(0, rows.shape[1], 8):
            y.addmm_(rows[:, k : k + 8], self.weight[:, k : k + 8].float().t())
        y.mul_(self.get_buffer("scale"))
        if self.bias is not None:
            y += self.bias
        return y.reshape(*x.shape[:-1], -1)
