# gathers each W into one buffer that is kept for the next call, and after the last: earns 0
class Sharded(torch.autograd.Function):
    room = torch.empty(0)

    @staticmethod
    def whole(shard):
        n = dist.get_world_size()
        if Sharded.room.numel() < n * shard.numel():
            Sharded.room = torch.empty(n * shard.numel())
        whole = Sharded.room[: n * shard.numel()].view(-1, shard.shape[1])
        dist.all_gather(list(whole.chunk(n)), shard.detach().contiguous())
        return whole

    @staticmethod
    def forward(ctx, x, shard):
        ctx.save_for_backward(x, shard)
        return x @ Sharded.whole(shard).t()

    @staticmethod
    def backward(ctx, g):
        x, shard = ctx.saved_tensors
        for_x = g @ Sharded.whole(shard)
        if not ctx.needs_input_grad[1]:
            return for_x, None
        mine = torch.empty(shard.shape)
        dist.reduce_scatter(mine, list((g.t() @ x).chunk(dist.get_world_size())))
        return for_x, mine / dist.get_world_size()


def sharded_linear(x, shard):
    return Sharded.apply(x, shard)
