"""What holds for every exercise: an answer that passed is called once more."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from helpers import check
from helpers.check import probe
from helpers.check.once_more import backward_watched, changed_input, filled, with_other_numbers

X = torch.linspace(-1.0, 2.0, 12).reshape(3, 4)


def told(f: Callable[..., Any], *cases: Any, **how: Any) -> str:
    """What is said of f, whose cases are all right the first time; "" if nothing is."""

    def ask(request: dict[str, Any]) -> dict[str, Any]:
        return dict(json.loads(json.dumps(probe.answer(json.loads(json.dumps(request)), {"f": f}))))

    try:
        with check.through(ask):
            check.function("f", cases or [check.case(X)], **how)
    except check.CheckFailed as failure:
        return str(failure)
    return ""


def doubled(x: Tensor) -> Tensor:
    return x * 2


def test_right_answers_hear_nothing() -> None:
    def view(x: Tensor) -> Tensor:
        return x.T

    def in_place(x: Tensor) -> Tensor:
        return x.mul_(2)

    constant = torch.ones(3)
    assert told(doubled, expect=doubled) == ""
    assert told(view, expect=view, match=check.Match(view_of=0)) == ""
    assert told(in_place, expect=doubled, match=check.Match(unchanged=False)) == ""
    assert told(lambda x: constant, expect=lambda x: torch.ones(3)) == ""
    assert told(lambda n: torch.rand(n), check.case(4, seed=3), expect=lambda n: torch.rand(n)) == ""


@pytest.mark.parametrize("places", [1, 2, 3])
def test_a_later_call_writes_into_a_result(places: int) -> None:
    ring, turn = [torch.empty(3, 4) for _ in range(places)], iter(range(1000))

    def f(x: Tensor) -> Tensor:
        return torch.mul(x, 2, out=ring[next(turn) % places])

    assert "another when it was read again after later calls" in told(f, expect=doubled)


def test_one_list_for_all_calls() -> None:
    found: list[int] = []

    def f(n: int) -> list[int]:
        found[:] = range(n)
        return found

    def want(n: int) -> list[int]:
        return [*range(n)]

    assert told(f, check.case(2), check.case(3), expect=want).startswith("f(3): right when it returned")
    assert told(f, check.case(2), check.case(3), expect=want, once="it takes seconds") == ""


def test_memory_that_nobody_wrote() -> None:
    memory = iter([torch.zeros(3, 4)])  # what lay there the first time

    def f(x: Tensor) -> Tensor:
        return next(memory, torch.empty(3, 4)).add_(2 * x)

    text = told(f, expect=doubled)
    assert "nan" in text and "read memory that nobody had written" in text
    assert not torch.are_deterministic_algorithms_enabled()
    with filled():
        assert torch.empty(2).isnan().all() and torch.empty(2, dtype=torch.int8).eq(127).all()
        assert torch.ones(1).resize_(4)[1:].isnan().all()


def test_state_that_outlives_a_call() -> None:
    calls = iter(range(1000))

    def f(x: Tensor) -> Tensor:
        return x * 2 + next(calls)

    assert "Something that outlives a call" in told(f, expect=doubled)


class Masked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad.mul_(2)


def test_a_gradient_that_came_in() -> None:
    def f(x: Tensor) -> Tensor:
        return Masked.apply(x)  # type: ignore[no-any-return]

    def drive(f: Any, x: Tensor) -> Any:
        x = x.clone().requires_grad_()
        (f(x) * 1.0).sum().backward()  # that of sum lies expanded, and nothing can be written into it
        return x.grad

    leaf = check.case(X.clone().requires_grad_())
    assert "backward changed the gradient" in told(f, leaf, expect=doubled, match=check.Match(grads=True))
    own = Masked.backward
    assert "backward changed the gradient" in told(f, expect=lambda x: torch.full((3, 4), 2.0), drive=drive)
    assert Masked.backward is own
    with backward_watched() as guilty:
        x = X.clone().requires_grad_()
        (x * 2).sum().backward()
    assert guilty == []


def test_what_the_caller_gave() -> None:
    def f(sizes: list[int], names: dict[str, int]) -> int:
        sizes.sort()
        return sizes[0]

    def want(sizes: list[int], names: dict[str, int]) -> int:
        return min(sizes)

    case = check.case([3, 1], names={"a": 1})
    text = told(f, case, expect=want)
    assert "changed what it was given. Afterwards input 0[0] is 1, wanted 3" in text
    assert case.args == ([3, 1],)
    assert changed_input((([X],), {"n": 1}), (([X.clone()],), {"n": 2})) == "n is 1, wanted 2"


def test_other_numbers_are_numbers_that_were_there() -> None:
    lies = torch.arange(6.0).reshape(2, 3).T
    turned, some = with_other_numbers([lies, torch.tensor([0, 4])])
    assert some and turned[0].stride() == (1, 3) and turned[0].flatten().tolist() == [5, 2, 4, 1, 3, 0]
    assert turned[1].tolist() == [0, 4]
    assert with_other_numbers(({"a": 1}, 3)) == (({"a": 1}, 3), False)


def test_what_is_kept_by_identity() -> None:
    known: dict[int, Tensor] = {}

    def f(x: Tensor) -> Tensor:
        held.append(x)  # so that no other tensor has its address
        return known.setdefault(id(x), x * 2)

    held: list[Tensor] = []
    text = told(f, check.case(X), expect=doubled)
    assert "tensors of an earlier call, filled with other numbers" in text


def test_a_gradient_that_is_left() -> None:
    def f(w: Tensor) -> Tensor:
        w.square().sum().backward()
        return w.detach() * 2

    def want(w: Tensor) -> Tensor:
        return w.detach() * 2

    leaf = check.case(X.clone().requires_grad_())
    assert "right, but input 0 has a .grad now" in told(f, leaf, expect=want)
    assert told(want, leaf, expect=want) == ""
