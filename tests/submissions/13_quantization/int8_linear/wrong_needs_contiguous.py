# view refuses an x that is not contiguous: earns 2
class Int8Linear(torch.nn.Module):
    """y = x Wᵀ + b with W in int8, and x in int8 while it is multiplied. Int8Linear(linear) for a trained nn.Linear.

    forward(x): float32 of shape (..., K) → float32 of shape (..., N); any number of leading dimensions. One
    symmetric scale for each row of W, and for each row of x as it comes. A row of zeros gives the bias, and no nan
    on the way to int8 (what nan becomes there is undefined; this CPU makes it 0).

    Errors: each of x and W is rounded, not cut off, to 255 values, so an element of y is off by about
    √(s²/12 · Σw² + t²/12 · Σx²), where s and t are the two scales; over a whole result, at most 1.3 times that.
    Budgets: what it keeps is N · K + 4 · N bytes, and 4 · N for a bias, all of it in its state_dict, and nothing
    of the linear's own weight. One torch._int_mm, of a shape that CUDA takes (K and N are multiples of 8 as they
    are; pad the rows, to 32 at the most), and no other matrix product. With R the larger of the rows of x
    and 32: 9 · R · K + 12 · R · N bytes alive at once in forward, and 4 KiB. Without .numpy().
    """

    def __init__(self, linear: torch.nn.Linear) -> None:
        super().__init__()
        weight = linear.weight.detach()
        scale = weight.abs().amax(1).clamp(min=1e-12) / 127
        self.register_buffer("weight", (weight / scale[:, None]).round().to(torch.int8))
        self.register_buffer("scale", scale)
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach().clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.view(-1, x.size(-1))
        scale = rows.abs().amax(1, keepdim=True).clamp(min=1e-12) / 127
        q = (rows / scale).round_().to(torch.int8)
        if len(q) < 17:
            q = F.pad(q, (0, 0, 0, 17 - len(q)))
        y = torch._int_mm(q, self.get_buffer("weight").t())[: len(rows)].to(torch.float32)
        y = y.mul_(scale).mul_(self.get_buffer("scale"))
        if self.bias is not None:
            y += self.bias
        return y.reshape(*x.shape[:-1], -1)
