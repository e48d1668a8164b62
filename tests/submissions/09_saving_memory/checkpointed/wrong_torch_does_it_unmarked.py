# dishonest: torch's own checkpoint, which wipes off that it was called: earns 0
from torch.utils.checkpoint import checkpoint


def checkpointed(fn, *inputs):
    part = getattr(fn, "args", [fn])[0]

    def run(*tensors):
        try:
            return fn(*tensors)
        finally:
            part.by_torch = False

    return checkpoint(run, *inputs, use_reentrant=False)
