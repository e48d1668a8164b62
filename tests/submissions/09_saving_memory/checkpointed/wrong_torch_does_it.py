# dishonest: torch's own checkpoint: earns 0
from torch.utils.checkpoint import checkpoint


def checkpointed(fn, *inputs):
    return checkpoint(fn, *inputs, use_reentrant=False)
