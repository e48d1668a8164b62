from torch.utils.checkpoint import checkpoint


class Whole(torch.autograd.Function):
    @staticmethod
    def forward(ctx, shard):
        n = dist.get_world_size()
        whole = torch.empty(n * shard.shape[0], shard.shape[1])
        dist.all_gather(list(whole.chunk(n)), shard.detach().contiguous())
        return whole

    @staticmethod
    def backward(ctx, g):
        n = dist.get_world_size()
        out = torch.empty(g.shape[0] // n, g.shape[1])
        dist.reduce_scatter(out, list(g.contiguous().chunk(n)))
        return out / n


def sharded_linear(x, shard):
    return checkpoint(lambda x, shard: x @ Whole.apply(shard).t(), x, shard, use_reentrant=False)
