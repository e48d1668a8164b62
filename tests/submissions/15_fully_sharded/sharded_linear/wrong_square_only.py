# takes it that W is square: earns 0
class Sharded(torch.autograd.Function):
    @staticmethod
    def whole(shard):
        whole = torch.empty(shard.shape[1], shard.shape[1])
        dist.all_gather(list(whole.chunk(dist.get_world_size())), shard.detach())
        return whole

    @staticmethod
    def forward(ctx, x, shard):
        ctx.save_for_backward(x, shard)
        return x @ Sharded.whole(shard).t()

    @staticmethod
    def backward(ctx, g):
        x, shard = ctx.saved_tensors
        n = dist.get_world_size()
        for_shard = torch.empty_like(shard)
        dist.reduce_scatter(for_shard, list((g.t() @ x).chunk(n)))
        return g @ Sharded.whole(shard), for_shard / n


def sharded_linear(x, shard):
    return Sharded.apply(x, shard)
