"""Parts of the script whose results follow from their arguments: each called by itself, on fixed inputs.

A training hides a small difference: GELU by erf for GELU by tanh, or a weight decay that is not there, moves no loss by a
thousandth in a few steps. Held against the script's own part, in float32 on the CPU, it is plain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from helpers.lessons.capstone.parts import Script
from helpers.lessons.capstone.plain import eager, without_autocast
from helpers.lessons.capstone.twins import with_twins
from helpers.simulator import simulate

#: how far a result may be off, as a share of its largest number
CLOSE = 1e-5
#: a result by name: its shape and its numbers
Results = dict[str, tuple[list[int], list[float]]]


@lru_cache(maxsize=256)
def results(script: Script, name: str) -> Results:
    """What this part of the script (of CALLS) gives; autocast and torch.compile change nothing here."""
    with without_autocast(), eager(), torch.random.fork_rng(devices=[]):
        made = script.module()

        def train(*given: Any) -> Iterator[Results]:
            yield CALLS[name](made)

        vars(made)["train"] = (
            train  # a part that stands in for another sees the script's names where a step runs
        )
        given_back: Results = next(script.within(made, None, {}, None, 0))
    return given_back


def changed(before: Script, after: Script) -> str | None:
    """How a part that `after` has replaced differs from that of `before`, called by itself; None where all agree."""
    kept = dict(before.replaced)
    for name, part in after.replaced:
        if name in CALLS and kept.get(name) is not part:
            if odd := apart(name, results(before, name), results(after, name)):
                return odd
    return None


def apart(name: str, own: Results, other: Results) -> str | None:
    """How the results of a part differ from those of the script's own, in words; None where they agree."""
    for what, (shape, numbers) in own.items():
        if what not in other:
            return f"{name} returns {len(other)} tensors, the script's own {len(own)}"
        of_shape, of_numbers = other[what]
        if shape != of_shape:
            return f"{name}, called by itself, gives {what} of shape {of_shape}, the script's own {shape}"
        off = [abs(a - b) for a, b in zip(numbers, of_numbers, strict=True)]
        worst = max(range(len(off)), key=lambda i: off[i] if off[i] == off[i] else float("inf"))
        if not off[worst] <= CLOSE * max(map(abs, numbers)):
            a, b = numbers[worst], of_numbers[worst]
            return f"{name}, called by itself, gives {b:.6g} in {what}, where the script's own gives {a:.6g}"
    return None


def _plain(**named: Any) -> Results:
    tensors = {what.replace("_", " "): torch.as_tensor(value) for what, value in named.items()}
    return {what: (list(t.shape), t.detach().double().flatten().tolist()) for what, t in tensors.items()}


def _drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _with_gradients(part: Callable[..., Any], *inputs: Tensor) -> Results:
    """The part's tensors, and the gradients of its inputs for fixed ones of the tensors."""
    inputs = tuple(t.requires_grad_() for t in inputs)
    out = part(*(t * 1 for t in inputs))  # no leaves: it may work in place
    some = [out] if isinstance(out, Tensor) and out.dim() < 5 else list(out)
    torch.autograd.backward(some, [_drawn(*t.shape, seed=i + 9).to(t.dtype) for i, t in enumerate(some)])
    names = (
        ["its result"] if len(some) == 1 else [f"tensor {i} of its result" for i in range(1, len(some) + 1)]
    )
    grads = {f"the gradient of input {i}": t.grad for i, t in enumerate(inputs, start=1)}
    return _plain(**dict(zip(names, some, strict=True)), **grads)


def _net(made: Any) -> nn.Module:
    """The script's model, small, with small weights."""
    net: nn.Module = made.Net(made.Size(side=8, width=8, heads=2, layers=1))
    return _filled(net, 1)


@torch.no_grad()
def _filled(net: nn.Module, seed: int) -> nn.Module:
    for i, weight in enumerate(net.parameters()):
        weight.copy_(0.1 * _drawn(*weight.shape, seed=100 * seed + i))
    return net


def _graded(net: nn.Module, seed: int, scale: float = 1.0) -> None:
    for i, weight in enumerate(net.parameters()):
        weight.grad = scale * _drawn(*weight.shape, seed=100 * seed + i)


def _flat(tensors: Iterable[Tensor]) -> Tensor:
    return torch.cat([tensor.detach().double().flatten() for tensor in tensors])


def _clip(made: Any) -> Results:
    results_of = {}
    for of, scale in (("long", 1.0), ("short", 0.001)):
        net = _net(made)
        _graded(net, 2, scale)
        results_of[f"the length of {of} gradients"] = made.clip(net)
        results_of[f"the gradients after clipping {of} ones"] = _flat(
            w.grad for w in net.parameters() if w.grad is not None
        )
    return _plain(**results_of)


def _average(made: Any) -> Results:
    averaged, model = _net(made), _filled(_net(made), 3)
    made.average(averaged, model)
    return _plain(the_averaged_weights=_flat(averaged.parameters()), the_weights=_flat(model.parameters()))


def _make_optimizer(made: Any) -> Results:
    net = _net(made)
    optimizer, before, moved = made.make_optimizer(net), _flat(net.parameters()), {}
    for step in (1, 2):
        optimizer.zero_grad()
        _graded(net, 3 + step)
        optimizer.step()
        moved[f"how far step {step} has moved the weights"] = _flat(net.parameters()) - before
    return _plain(**moved)


def _share(made: Any) -> Results:
    with with_twins(simulate("H100").world(2)) as gpu:
        net = _net(made).to(gpu.device)
        for weight, grad in zip(net.parameters(), _net(made).parameters(), strict=True):
            weight.grad = grad.detach().to(gpu.device)
        made.share(net)
        return _plain(the_gradients=_flat(w.grad.cpu() for w in net.parameters() if w.grad is not None))


def _labels() -> Tensor:
    return torch.tensor([0, 3, 5, 1])


#: part → what it gives; called with a module of the script
CALLS: dict[str, Callable[[Any], Results]] = {
    "normalise": lambda made: _plain(
        its_result=made.normalise(torch.arange(192, dtype=torch.uint8).view(1, 3, 8, 8))
    ),
    "attention": lambda made: _with_gradients(
        made.attention, *(_drawn(2, 2, 4, 8, seed=i) for i in range(3))
    ),
    "activation": lambda made: _with_gradients(made.activation, 3 * _drawn(2, 5, 32)),
    "places": lambda made: _with_gradients(made.places, _drawn(2, 8, 4, 4)),
    "split_heads": lambda made: _with_gradients(lambda qkv: made.split_heads(qkv, 2), _drawn(2, 4, 24)),
    "cost": lambda made: _with_gradients(lambda logits: made.cost(logits, _labels()), 3 * _drawn(4, 6)),
    "share": _share,
    "clip": _clip,
    "make_optimizer": _make_optimizer,
    "average": _average,
}
