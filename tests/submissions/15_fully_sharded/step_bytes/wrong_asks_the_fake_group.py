# dishonest: lets torch do it and counts: earns 0
def step_bytes(blocks, n, reshard=True):
    from torch.distributed.fsdp import fully_shard

    class Block(nn.Module):
        def __init__(self, shapes):
            super().__init__()
            self.all = nn.ParameterList(torch.zeros(s) for s in shapes)

        def forward(self, x):
            return x + sum(p.sum() for p in self.all)

    with ranks.fake(n) as mesh:
        model = nn.Sequential(*(Block(shapes) for shapes in blocks))
        for block in model:
            fully_shard(block, mesh=mesh, reshard_after_forward=reshard)
        fully_shard(model, mesh=mesh, reshard_after_forward=reshard)
        with ranks.sent(model) as record:
            model(torch.zeros(2, requires_grad=True)).sum().backward()
    kinds = ("all_gather", "reduce_scatter")
    return {"calls": record.count(), **{kind: record.bytes(kind) for kind in kinds}, "wire": int(record.wire_bytes())}
