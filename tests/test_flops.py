"""Formulas for FLOPs: none of PyTorch's operators that contract is without."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from helpers import count
from helpers.pytorch.flops import contracts, formula
from helpers.simulator import simulate

#: sums that go over each number once, and are no products of vectors: losses, normalisations, and one of three
SUMS = {
    *("mse_loss", "huber_loss", "smooth_l1_loss", "soft_margin_loss", "binary_cross_entropy_with_logits", "dist"),
    *("_softmax_backward_data", "_log_softmax_backward_data", "histogram", "linalg_cross", "_weight_norm_interface"),
    *("binomial", "bernoulli", "normal"),  # draw: what comes first decides what is drawn afterwards
    *("resize", "resize_as", "_resize_output"),  # show memory that nobody has written
}  # fmt: skip


def test_operators_that_contract_have_a_formula() -> None:
    program = Path(__file__).with_name("contracting.py")
    ran = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=True)
    names = [line.rpartition(".")[0].split(".") for line in ran.stdout.split()]
    packets = [getattr(getattr(torch.ops, space), name) for space, name in names]
    known = {"mm", "mv", "dot", "addbmm", "convolution", "_cdist_forward", "_compute_linear_combination"}
    assert known <= {name for _, name in names}  # it does find some
    without = {p.__name__ for p in packets if _formula(p) is None and p.__name__ != _OF_THE_COUNTERS}
    assert without <= SUMS


_OF_THE_COUNTERS = "_scaled_dot_product_flash_attention_for_cpu"


def _formula(packet: Any) -> Callable[..., int] | None:
    return formula(getattr(packet, packet.overloads()[0]))


A, B, INTO = torch.rand(4, 5), torch.rand(5, 6), torch.zeros(4, 6)
PRODUCT = 2 * 4 * 5 * 6
BYTES = [t.mul(9).to(torch.int8) for t in (A, B)]
#: ways to the same product
PRODUCTS: dict[str, Callable[[], Any]] = {
    "addmm_": lambda: INTO.clone().addmm_(A, B),
    "addbmm": lambda: torch.addbmm(INTO, A[None], B[None]),
    "addbmm_": lambda: INTO.clone().addbmm_(A[None], B[None]),
    "addbmm out": lambda: torch.addbmm(INTO, A[None], B[None], out=torch.empty(4, 6)),
    "activation": lambda: torch._addmm_activation(INTO, A, B),
    "combination": lambda: torch._compute_linear_combination(B, A),
    "rows": lambda: torch.stack([torch.mv(B.t(), row) for row in A]),
    "rows, added": lambda: torch.stack([torch.addmv(INTO[0], B.t(), row) for row in A]),
    "numbers": lambda: torch.stack([torch.dot(row, column) for row in A for column in B.t()]).view(4, 6),
    "bag": lambda: F.embedding_bag(torch.arange(5).repeat(4, 1), B, per_sample_weights=A, mode="sum"),
    "bilinear": lambda: torch._trilinear(A, B, torch.ones(6), [2], [0], [0, 1], [1]),
    "convolution": lambda: torch.conv_tbc(A[None], B[None], torch.zeros(6))[0],
    "sparse": lambda: torch.sparse.mm(A.to_sparse(), B),
    "oneDNN": lambda: torch.ops.mkldnn._linear_pointwise(A, B.t().contiguous(), None, "none", [], ""),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_costs_the_same_by_whichever_operator(name: str) -> None:
    counts = count(PRODUCTS[name])
    torch.testing.assert_close(counts.result, A @ B)
    assert counts.flops == PRODUCT


def test_layers_in_one_operator() -> None:
    x, lstm, layer = (
        torch.rand(3, 2, 8),
        nn.LSTM(8, 16),
        nn.TransformerEncoderLayer(8, 2, 32, batch_first=True).eval(),
    )
    assert count(lambda: lstm(x)[0].sum().backward()).flops == 3 * 2 * x[..., 0].numel() * 4 * 16 * (8 + 16)
    matrices = [p for p in layer.parameters() if p.dim() == 2]
    with torch.no_grad():
        counts = count(layer, x)
    assert counts.by_operator == {"aten._transformer_encoder_layer_fwd": 1}
    assert counts.flops == 2 * 3 * 2 * (sum(w.numel() for w in matrices) + 2 * 2 * 8)


def test_inverses_and_solutions() -> None:
    """A product hides in them: of [[1, A], [0, 1]] and the like the inverse, with right sides their solution."""
    corner = torch.eye(15) + torch.zeros(15, 15).index_put(
        (torch.arange(4)[:, None], torch.arange(4, 9)), -A
    ).index_put((torch.arange(4, 9)[:, None], torch.arange(9, 15)), -B)
    counts = count(torch.linalg.inv, corner)
    torch.testing.assert_close(counts.result[:4, 9:], A @ B)
    assert counts.flops >= PRODUCT
    wide = torch.rand(15, 400)
    assert (
        count(lambda: torch.linalg.solve_triangular(corner, wide, upper=True)).flops >= 2 * 15 * wide.numel()
    )
    assert count(torch.linalg.vector_norm, A).flops == 0


def test_the_simulated_gpu_counts_them_as_well() -> None:
    with simulate("H100") as gpu:
        a, b, into = (t.to(gpu.device) for t in (A, B, INTO))
        torch.addbmm(into, a[None], b[None])
        assert gpu.kernels[-1].flops == PRODUCT
        into.addmm_(a, b)
        assert gpu.kernels[-1].flops == PRODUCT


def test_a_product_is_known_by_its_name_in_a_count() -> None:
    names = ["aten.mm", "aten._int_mm", "aten._cdist_forward", "aten.addmv_", "aten.convolution"]
    assert all(map(contracts, names))
    assert not any(map(contracts, ["aten.add", "aten._softmax", "aten._to_copy", "Tensor.tolist", "mine.mm"]))
