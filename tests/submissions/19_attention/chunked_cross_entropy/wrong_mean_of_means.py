# the mean over chunks of each chunk's mean; a chunk where nothing counts is left out: earns 0
from torch.utils.checkpoint import checkpoint


def chunked_cross_entropy(hidden, weight, targets, rows):
    parts = [
        checkpoint(lambda h, t: F.cross_entropy(h @ weight.T, t), part, wanted, use_reentrant=False)
        for part, wanted in zip(hidden.split(rows), targets.split(rows))
        if (wanted != -100).any()
    ]
    return torch.stack(parts).mean()
