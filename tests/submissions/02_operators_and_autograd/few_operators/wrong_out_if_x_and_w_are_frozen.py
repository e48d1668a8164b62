# it asks only two of seven inputs whether they want gradients: earns 3
import torch
import torch.nn.functional as F


def block(
    x: torch.Tensor,
    w: torch.Tensor,
    b: torch.Tensor,
    gate: torch.Tensor,
    residual: torch.Tensor,
    gamma: torch.Tensor,
    beta: torch.Tensor,
    eps: float = 1e-5,
) -> torch.Tensor:
    h = F.linear(x, w, b)
    if torch.is_grad_enabled() and (x.requires_grad or w.requires_grad):
        h = torch.addcmul(residual, gate, h)
    else:
        torch.addcmul(residual, gate, h, out=h)  # no graph: h's memory can be used again
    return F.silu(F.layer_norm(h, h.shape[-1:], gamma, beta, eps))
