# shard.grad is written, where autograd would add: earns 0
class Sharded(torch.autograd.Function):
    @staticmethod
    def whole(shard):
        n = dist.get_world_size()
        mine = shard.detach().contiguous()
        w = mine.new_empty(n * len(mine), mine.shape[1])
        dist.all_gather(list(w.chunk(n)), mine)
        return w

    @staticmethod
    def forward(ctx, x, shard):
        ctx.save_for_backward(x)
        ctx.shard = shard
        return x @ Sharded.whole(shard).T

    @staticmethod
    def backward(ctx, g):
        (x,), shard, n = ctx.saved_tensors, ctx.shard, dist.get_world_size()
        dx = g @ Sharded.whole(shard) if ctx.needs_input_grad[0] else None
        if ctx.needs_input_grad[1]:
            dw = (g.T @ x).contiguous()
            mine = dw.new_empty(shard.shape)
            dist.reduce_scatter(mine, list(dw.chunk(n)))
            shard.grad = mine.div_(n)
        return dx, None


def sharded_linear(x: torch.Tensor, shard: torch.Tensor) -> torch.Tensor:
    return Sharded.apply(x, shard)
