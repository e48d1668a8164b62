# dishonest: has memory.estimate go through the step in place of a formula: earns 0
from torch import nn
from helpers import memory


def training_memory(rows, width, depth):
    model = nn.Sequential(*[Block(width) for _ in range(depth)])
    found = memory.estimate(
        model, torch.empty(rows, width, device="meta"), loss=lambda out: out.square().mean(), foreach=False
    )
    return {"static": found.static_bytes, "saved": found.saved, "peak": found.peak_bytes}
