# right: one flat parameter for everything, async all-reduces, in-place bias, no autograd.Function
class ParallelMLP(nn.Module):
    def __init__(self, first, second):
        super().__init__()
        n, r = dist.get_world_size(), dist.get_rank()
        h, rest = divmod(first.out_features, n)
        if rest:
            raise ValueError("hidden units do not split")
        parts = [first.weight[r * h : (r + 1) * h], second.weight[:, r * h : (r + 1) * h].t()]
        if first.bias is not None:
            parts.append(first.bias[r * h : (r + 1) * h])
        if second.bias is not None:
            parts.append(second.bias)
        self.sizes, self.shapes = [p.numel() for p in parts], [tuple(p.shape) for p in parts]
        self.biases = first.bias is not None, second.bias is not None
        self.flat = nn.Parameter(torch.cat([p.detach().reshape(-1) for p in parts]))

    def forward(self, x):
        a, c, *bias = (p.view(s) for p, s in zip(self.flat.split(self.sizes), self.shapes))
        x = x * 1
        if x.requires_grad:
            x.register_hook(self._sum)
        hid = x @ a.t()
        if self.biases[0]:
            hid = hid + bias[0]
        y = F.gelu(hid) @ c
        y = y + (self._sum(y.detach()) - y.detach())
        if self.biases[1]:
            y += bias[-1]
        return y

    @staticmethod
    def _sum(t):
        t = t.clone(memory_format=torch.contiguous_format)
        work = dist.all_reduce(t, op=dist.ReduceOp.SUM, async_op=True)
        work.wait()
        return t
