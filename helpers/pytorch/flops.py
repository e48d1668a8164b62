"""Formulas for the FLOPs of an operator: those of torch.utils.flop_counter, but for a grouped convolution's backward, and
ours for the contractions that it does not know: a multiply-add is 2 there as here. tests/test_flops.py tries which contract.

Operators in place have the formulas of those that are not.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from math import prod
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from helpers.pytorch.tensors import tensors

aten = torch.ops.aten
_TORCHS = {"aten", "mkldnn", "mkl", "onednn", "quantized", "_quantized"}
# Their FLOPs follow from the shapes of their tensors alone.
_PRODUCTS = {aten.mm, aten.addmm, aten.bmm, aten.baddbmm}


def formula(func: Any) -> Callable[..., int] | None:
    """What gives an operator's FLOPs by its arguments and `out_val`, its result; None where there is no formula."""
    packet, (namespace, _, name) = func._overloadpacket, str(func._overloadpacket).partition(".")
    if namespace not in _TORCHS:
        return None  # what a program has named: the operators in it are counted
    if name.endswith("_") and hasattr(aten, name[:-1]):
        packet, name = getattr(aten, name[:-1]), name[:-1]
    if packet is aten.convolution_backward:
        return _convolution_backward
    formula_of: Callable[..., int] | None = flop_registry.get(packet)  # type: ignore[assignment]
    if formula_of is not None:
        return _remembered(formula_of) if packet in _PRODUCTS else formula_of
    if _LAYS_ANEW.search(name):
        return None
    return next((ours for names, ours in _OURS.items() if re.fullmatch(names, name)), None)


@cache
def contracts(name: str) -> bool:
    """Whether an operator, by its name in a count ("aten.bmm"), is a product: whether it has a formula here."""
    namespace, _, operator = name.partition(".")
    packet = getattr(getattr(torch.ops, namespace), operator, None)
    return packet is not None and any(formula(getattr(packet, each)) for each in packet.overloads())


def _convolution_backward(*args: Any, out_val: Any = None) -> int:
    """Each gradient that is asked for costs what the forward pass did: every output element (every input element
    where the convolution is transposed) meets one filter. torch's formula (2.13) lets each channel of the input meet
    each of the output for the weight's gradient, as if there were one group."""
    grad, given, weight, *_, transposed, _, groups, mask = args
    if groups == 1:
        return int(flop_registry[aten.convolution_backward](*args, out_val=out_val))  # type: ignore[operator]
    return 2 * (given if transposed else grad).numel() * prod(weight.shape[1:]) * sum(mask[:2])


def _remembered(found: Callable[..., int]) -> Callable[..., int]:
    """The same formula, asked once for the same shapes: torch goes through the arguments as through any nest of them."""
    known: dict[Any, int] = {}

    def flops(*args: Any, **kwargs: Any) -> int:
        given = (*args, *kwargs.values())
        shapes = tuple([value.shape for value in given if isinstance(value, torch.Tensor)])
        if shapes not in known:
            known[shapes] = found(*args, **kwargs)
        return known[shapes]

    return flops


# --------------------------------------------------------------- what torch.utils.flop_counter has no formula for


def factorisation(matrix: torch.Tensor) -> int:
    """For m × n with m ≥ n, 4n²(m − n/3) FLOPs, those of a QR with its Q, and of an inverse (Golub and Van Loan,
    Matrix Computations, 4th ed., 5.2.2 and 3.2.9). A Cholesky takes an eighth of it, singular vectors eight times as many."""
    *batch, rows, columns = matrix.shape if matrix.dim() > 1 else (1, *matrix.shape)
    m, n = max(rows, columns), min(rows, columns)
    return round(prod(batch) * (4 if matrix.is_complex() else 1) * 4 * n * n * (m - n / 3))


def _factorisation(*args: Any, out_val: Any = None, **_: Any) -> int:
    """The first matrix's, and what meets it: right sides of an equation, a matrix that Householder's reflections turn."""
    first, *others = [t for t in tensors(args) if t.dim() > 1]
    return factorisation(first) + sum(2 * t.numel() * first.shape[-1] for t in others)


def _product(*args: Any, out_val: torch.Tensor, **_: Any) -> int:
    """Each number of the left matrix, which comes first, meets as many of the right one as the result has columns."""
    return 2 * args[0].numel() * out_val.shape[-1]


def _added_product(*args: Any, out_val: torch.Tensor, **_: Any) -> int:
    return _product(*args[1:], out_val=out_val)


def _once(*args: Any, out_val: Any = None, **_: Any) -> int:
    """A matrix and a vector, or two vectors: each number of the largest is used once."""
    return 2 * max(t.numel() for t in tensors(args))


def _convolution(given: Any, weight: Any, *_: Any, out_val: torch.Tensor, **__: Any) -> int:
    return 2 * out_val.numel() * prod(weight.shape[1:])


def _convolution_transposed(given: Any, weight: Any, *_: Any, out_val: Any = None, **__: Any) -> int:
    return 2 * given.numel() * prod(weight.shape[1:])


def _over_time(*args: Any, out_val: Any, **_: Any) -> int:
    """conv_tbc, whose weight lies (length, from, to), and its backward: two gradients."""
    backward = isinstance(out_val, tuple)
    result, weight = (args[0], args[2]) if backward else (out_val, args[1])
    return (4 if backward else 2) * result.numel() * prod(weight.shape[:2])


def _trilinear(a: Any, b: Any, c: Any, *expanded: Any, out_val: Any = None, **_: Any) -> int:
    """Three tensors, each given more dimensions, multiplied elementwise; sums of that."""
    for i, places in zip((0, 1, 2), expanded[:3], strict=True):
        for place in places:
            a, b, c = (t.unsqueeze(place) if i == j else t for j, t in enumerate((a, b, c)))
    return 2 * prod(torch.broadcast_shapes(a.shape, b.shape, c.shape))


def _distances(x: Any, y: Any, *_: Any, out_val: Any = None, **__: Any) -> int:
    """Each difference, its power, their sum."""
    return 3 * max(x.numel() * y.shape[-2], y.numel() * x.shape[-2])


def _distances_backward(grad: Any, *args: Any, out_val: Any = None, **_: Any) -> int:
    return _distances(*args)


def _distances_within(*args: Any, out_val: Any = None, **_: Any) -> int:
    x = next(t for t in tensors(args) if t.dim() > 1)
    return 3 * x.numel() * (len(x) - 1) // 2


def _weighted_rows(weight: Any, indices: Any, *rest: Any, out_val: Any = None, **_: Any) -> int:
    """An embedding bag's: sums of rows are no product, unless each has a factor."""
    factors = [t for t in tensors(rest[1:]) if t.is_floating_point()]
    return 2 * indices.numel() * weight.shape[-1] if factors else 0


def _recurrent(given: Any, first: Any, second: Any, *rest: Any, out_val: Any, **_: Any) -> int:
    """oneDNN's layer of an RNN: each step of each sequence meets both matrices; backward, for two gradients each."""
    passes = 1 if len(out_val) < 5 else 2
    return 2 * passes * given.shape[:-1].numel() * (first.numel() + second.numel())


def _attention_layer(*args: Any, out_val: Any = None, **_: Any) -> int:
    """A whole layer in one: its matrices for each token, and attention of tokens to tokens of their sequence."""
    given = args[0]
    matrices = [t for t in args if isinstance(t, torch.Tensor) and t.dim() == 2]
    return (
        2
        * given.shape[:-1].numel()
        * (sum(w.numel() for w in matrices) + 2 * given.shape[-2] * given.shape[-1])
    )


#: packs or turns a weight
_LAYS_ANEW = re.compile(r"prepack|unpack(?!ed)|reorder|quantize_weight")
#: names, without a namespace → formula
_OURS: dict[str, Callable[..., int]] = {
    r"_?(int|weight_int[48]pack|scaled|grouped|scaled_grouped)_mm(_v2|_for_cpu|_with_scales_and_zeros)?": _product,
    r"_dyn_quant_matmul_4bit|_sparse_sparse_matmul|hspmm|_sparse_mm_reduce_impl": _product,
    # of oneDNN, MKL, fbgemm and others
    r"(?!upsample|.*(backward|combination))(.*_)?linear(_.*)?": _product,
    r"addbmm|_addmm_activation|_sparse_addmm|sspaddmm": _added_product,
    r"sparse_sampled_addmm": lambda mask, a, *_, **__: 2 * mask._nnz() * a.shape[-1],
    r"_compute_linear_combination": lambda x, factors, **_: 2 * factors.numel() * x[0].numel(),
    r"(add)?mv|v?dot|_embedding_bag_per_sample_weights_backward": _once,
    r"(?!.*backward).*conv.*transpose.*": _convolution_transposed,
    r"conv_tbc(_backward)?": _over_time,
    r"(?!.*backward)(.*conv.*_(dilated|pointwise)|.*conv_?depthwise|slow_conv3d_forward|.*convolution).*": _convolution,
    r"_trilinear": _trilinear,
    r"_cdist_forward|_euclidean_dist": _distances,
    r"_cdist_backward": _distances_backward,
    r"_pdist_(for|back)ward": _distances_within,
    r"_embedding_bag(_forward_only)?": _weighted_rows,
    r"mkldnn_rnn_layer(_backward)?": _recurrent,
    r"_native_multi_head_attention|_transformer_encoder_layer_fwd": _attention_layer,
    r"_?linalg_(?!.*(norm|check_errors|cross|diagonal|powsum)).*|_?cholesky.*|geqrf|ormqr|orgqr|triangular_solve": _factorisation,
}
