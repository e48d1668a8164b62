# sends the gradient of a frozen shard too: earns 2
class Sharded(torch.autograd.Function):
    @staticmethod
    def whole(shard):
        whole = torch.empty(dist.get_world_size() * shard.shape[0], shard.shape[1])
        dist.all_gather(list(whole.chunk(dist.get_world_size())), shard.detach().contiguous())
        return whole

    @staticmethod
    def forward(ctx, x, shard):
        ctx.save_for_backward(x, shard)
        return x @ Sharded.whole(shard).t()

    @staticmethod
    def backward(ctx, g):
        x, shard = ctx.saved_tensors
        n = dist.get_world_size()
        for_x = g @ Sharded.whole(shard)
        for_shard = torch.empty(shard.shape)
        dist.reduce_scatter(for_shard, list((g.t() @ x).chunk(n)))
        return for_x, for_shard / n


def sharded_linear(x, shard):
    return Sharded.apply(x, shard)
