# undoes the gather by autograd: right gradients, but the product saves W: earns 0
class Whole(torch.autograd.Function):
    @staticmethod
    def forward(ctx, shard):
        n = dist.get_world_size()
        whole = torch.empty(n * shard.shape[0], shard.shape[1])
        dist.all_gather(list(whole.chunk(n)), shard.detach())
        return whole

    @staticmethod
    def backward(ctx, g):
        n = dist.get_world_size()
        out = torch.empty(g.shape[0] // n, g.shape[1])
        dist.reduce_scatter(out, list(g.contiguous().chunk(n)))
        return out / n


def sharded_linear(x, shard):
    return x @ Whole.apply(shard).t()
