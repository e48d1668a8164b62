"""The graph behind a tensor as plain data: nodes, leaves, and the bytes that each node keeps alive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from helpers.pytorch.tensors import tensors

MAX_NODES = 40
_SMALLER = {torch.int64: torch.int32, torch.float64: torch.float32, torch.complex128: torch.complex64}


@dataclass(frozen=True)
class Saved:
    """One tensor that a node keeps: its name there, its storage (a key), the bytes of that storage."""

    name: str
    key: int
    nbytes: int
    number: str = ""
    """Set for a Python number: it is kept in the node itself, and `helpers.count` does not count it."""


@dataclass
class Node:
    """One node of the backward graph; `trouble` is "", "freed" or "changed in place"."""

    label: str
    leaf: bool = False
    parameter: bool = False
    key: int = 0
    """Storage of a leaf."""
    saved: list[Saved] = field(default_factory=list)
    trouble: str = ""
    following: list[int] = field(default_factory=list)
    """Indexes of the nodes that backward visits next."""
    layer: int = 0


def _saved(function: Any) -> tuple[list[tuple[str, torch.Tensor]], str]:
    """What a node saved, by name; and "" or why it cannot be read: "freed" or "changed in place"."""
    saved: list[tuple[str, torch.Tensor]] = []
    names = ["saved_tensors"] if hasattr(type(function), "saved_tensors") else []
    for name in [*names, *(n for n in dir(function) if n.startswith("_saved_"))]:
        try:
            value = getattr(function, name)
        except RuntimeError as error:
            return saved, "changed in place" if "inplace" in str(error) else "freed"
        short = "saved" if name == "saved_tensors" else name.removeprefix("_saved_")
        saved += [(short, t) for t in tensors(value)]
    return saved, ""


def nodes_of(tensor: torch.Tensor, names: Mapping[str, torch.Tensor] | None = None) -> list[Node]:
    """Nodes of the graph behind `tensor`, its own first, each with the layer of its longest path from there.

    `names` gives leaves their names. ValueError if the tensor has no graph, or one of more than 40 nodes.
    """
    if tensor.grad_fn is None:
        why = "it is a leaf" if tensor.requires_grad else "nothing behind it asked for a gradient"
        raise ValueError(f"this tensor has no grad_fn: {why}, so backward has nothing to walk")
    known = {_key(t): name for name, t in (names or {}).items()}
    order: dict[Any, int] = {tensor.grad_fn: 0}
    functions = [tensor.grad_fn]
    nodes: list[Node] = []
    for function in functions:  # grows while it runs: breadth first
        if len(functions) > MAX_NODES:
            raise ValueError(
                f"this graph has over {MAX_NODES} nodes: draw one layer, or a smaller expression"
            )
        variable = getattr(function, "variable", None)
        if variable is not None:
            key = _key(variable)
            label = f"{known.get(key, 'leaf')}  {tuple(variable.shape)}"
            nodes.append(Node(label, leaf=True, parameter=isinstance(variable, torch.nn.Parameter), key=key))
            continue
        saved, trouble = _saved(function)
        kept = [_kept(name, t) for name, t in saved]
        node = Node(function.name().rpartition("::")[2], saved=kept, trouble=trouble)
        for following, _ in function.next_functions:
            if following is None:
                continue
            if following not in order:
                order[following] = len(functions)
                functions.append(following)
            node.following.append(order[following])
        nodes.append(node)
    _layers(nodes)
    return nodes


def _kept(name: str, tensor: torch.Tensor) -> Saved:
    if _is_number(tensor):
        return Saved(name, 0, 0, f"{tensor.item():g}")
    return Saved(name, _key(tensor), tensor.untyped_storage().nbytes())


def _is_number(tensor: torch.Tensor) -> bool:
    """Whether it is a Python number that torch wrapped to save it: the 2 of `w * 2`, an int64 of 8 bytes.

    torch asks no saved-tensor hook about such a one, and does not say which are. But in type promotion a
    wrapped number gives way to a smaller type of its category, which a true tensor without dimensions does
    not.
    """
    smaller = _SMALLER.get(tensor.dtype)
    if tensor.dim() or smaller is None:
        return False
    return torch.result_type(torch.empty((), dtype=smaller), tensor) == smaller


def _key(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _layers(nodes: list[Node]) -> None:
    changed = True
    while changed:
        changed = False
        for node in nodes:
            for i in node.following:
                if nodes[i].layer <= node.layer:
                    nodes[i].layer, changed = node.layer + 1, True


def saved_bytes(nodes: list[Node]) -> int:
    """Bytes kept for backward by the rule of `helpers.count`: each storage once, parameters not at all."""
    parameters = {node.key for node in nodes if node.parameter}
    saved = (s for node in nodes for s in node.saved if not s.number and s.key not in parameters)
    return sum({s.key: s.nbytes for s in saved}.values())
