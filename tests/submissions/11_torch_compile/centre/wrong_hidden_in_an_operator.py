# dishonest: the old code inside an operator of one's own, which the compiler cannot look into: earns 0
import torch


@torch.library.custom_op("lesson11::centre", mutates_args=())
def hidden(x: torch.Tensor, limit: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    norm = x.norm()
    if norm > limit:
        x = x * (limit / norm)
    kept = x[x.abs() > 0.5 * limit / len(x)]
    return x - kept.mean(), norm, torch.tensor(len(kept))


@hidden.register_fake
def _(x, limit):
    return torch.empty_like(x), x.new_empty(()), x.new_empty((), dtype=torch.int64)


def centre(x, limit):
    return hidden(x, limit)
