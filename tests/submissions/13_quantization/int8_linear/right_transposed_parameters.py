class Int8Linear(nn.Module):
    """Keeps the weight as (K, N), as a Parameter without gradient, and shares the bias."""

    def __init__(self, linear):
        super().__init__()
        w = linear.weight.detach().t()
        top = w.abs().amax(0)
        scale = torch.where(top == 0, 1.0, top / 127)
        self.w = nn.Parameter(torch.round(w / scale).to(torch.int8).t().contiguous().t(), requires_grad=False)
        self.s = nn.Parameter(scale, requires_grad=False)
        self.b = linear.bias

    def forward(self, x):
        flat = x.flatten(0, -2) if x.dim() > 1 else x[None]
        top = flat.abs().amax(-1)
        s = torch.where(top == 0, 1.0, top / 127).unsqueeze(1)
        room = flat.new_zeros(max(17, len(flat)), flat.shape[1], dtype=torch.int8)
        room[: len(flat)] = (flat / s).round_()
        out = torch._int_mm(room, self.w)
        del room
        out = out[: len(flat)].float()
        out *= s
        out *= self.s
        if self.b is not None:
            out += self.b
        return out.reshape(x.shape[:-1] + out.shape[-1:])
