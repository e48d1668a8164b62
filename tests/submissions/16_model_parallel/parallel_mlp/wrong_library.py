# torch's own parallelize_module: the exercise is to write it: earns 0
class ParallelMLP(nn.Module):
    def __init__(self, first, second):
        super().__init__()
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        if first.out_features % dist.get_world_size():
            raise ValueError("does not split")
        mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
        self.net = nn.Sequential(first, nn.GELU(), second)
        parallelize_module(self.net, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})

    def forward(self, x):
        return self.net(x)
