"""The seam: what crosses it, what its messages say, and that a lying object earns nothing."""

import json
import sys
import types
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from helpers import check
from helpers.check import probe
from helpers.check.compare import brief, difference
from helpers.check.data import NotPlain, decode, encode


def against(**learner: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A transport to code that defines these names; everything crosses as JSON text."""
    return lambda request: dict(
        json.loads(json.dumps(probe.answer(json.loads(json.dumps(request)), learner)))
    )


def failure(learner: dict[str, Any], name: str = "f", cases: Any = None, *args: Any, **options: Any) -> str:
    with check.through(against(**learner)), pytest.raises(check.CheckFailed) as caught:
        check.function(name, cases or [check.case(torch.arange(4.0))], *args, **options)
    return str(caught.value)


def test_a_test_may_say_how_it_calls_and_what_passed(capsys: pytest.CaptureFixture[str]) -> None:
    def drive(f: Any, x: Any) -> Any:
        return f(x)

    def broken(script: Any) -> Any:
        raise KeyError("clip")

    told: dict[str, Any] = {"drive": drive, "verify": lambda reports: None, "call": "f(script)"}
    assert failure({"f": broken}, "f", [check.case(3)], **told).startswith("f(script): raised KeyError")
    with check.through(against(f=abs)):
        check.function("f", [check.case(3)], passed=lambda reports: f"{reports[0].value} of 3 runs", **told)
    assert capsys.readouterr().out == "✓ f: 3 of 3 runs\n"


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        2.5,
        "text",
        [1, (2, "x")],
        {"a": [1], 2: None},
        slice(1, 9, 2),
        torch.float16,
        range(3),
        float("inf"),
        {1, 2},
        2 + 1j,
    ],
    ids=repr,
)
def test_plain_values_cross(value: Any) -> None:
    assert decode(json.loads(json.dumps(encode(value)))) == value


@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool, torch.uint8, torch.complex64],
)
def test_tensors_cross(dtype: torch.dtype) -> None:
    base = torch.randn(7, 6).mul(3).to(dtype)
    for tensor in (
        base,
        base.t(),
        base[1:, ::2],
        base[:0],
        base[2, 3],
        torch.zeros((), dtype=dtype),
        base[0, :1].expand(1),
        base[:1, :1].expand(3, 1),
    ):
        for with_storage in (False, True):
            back = decode(json.loads(json.dumps(encode(tensor, with_storage))))
            assert back.dtype == dtype and torch.equal(back, tensor)
            if with_storage:
                assert (back.stride(), back.storage_offset()) == (tensor.stride(), tensor.storage_offset())
                assert back.untyped_storage().nbytes() == tensor.untyped_storage().nbytes()


def test_arrays_parameters_and_gradients_cross() -> None:
    assert np.array_equal(decode(encode(np.arange(6).reshape(2, 3).T)), np.arange(6).reshape(2, 3).T)
    back = decode(encode(torch.nn.Parameter(torch.ones(2))))
    assert isinstance(back, torch.nn.Parameter) and back.requires_grad
    assert decode(encode(torch.ones(2, requires_grad=True))).requires_grad
    assert not decode(encode(torch.ones(2, requires_grad=True) * 2)).requires_grad, (
        "a result is data, not a graph"
    )


class Liar(torch.Tensor):
    def __eq__(self, other: Any) -> Any:
        return True

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return True


class Yes:
    def __eq__(self, other: object) -> bool:
        return True


class Five(int):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


@pytest.mark.parametrize("lie", [torch.zeros(2).as_subclass(Liar), Yes(), [Yes()], {"a": Yes()}])
def test_objects_do_not_cross(lie: Any) -> None:
    with pytest.raises(NotPlain):
        encode(lie)


def test_lies_earn_nothing() -> None:
    want = lambda x: x * 2  # noqa: E731
    assert "a Yes" in failure({"f": lambda x: Yes()}, "f", None, want)
    assert "subclass of Tensor" in failure({"f": lambda x: torch.zeros(4).as_subclass(Liar)}, "f", None, want)
    assert "wanted 7" in failure({"f": lambda x: Five(5)}, "f", None, [7])


def test_a_pass_says_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    with check.through(against(f=lambda x: x * 2)):
        check.function(
            "f",
            [check.case(torch.arange(4.0))],
            lambda x: x + x,
            budget={"operators": 1, "bytes_allocated": 16},
        )
    assert (
        capsys.readouterr().out
        == "✓ f: 1 case, values right, operators 1 (limit 1), bytes allocated 16 (limit 16)\n"
    )


def test_messages_teach() -> None:
    assert "there is no 'g'" in failure({}, "g")
    assert "is a int, wanted a function" in failure({"f": 3})
    message = failure(
        {"f": lambda x: torch.stack(list(x))},
        "f",
        None,
        lambda x: x,
        budget={"new_storages": 0},
        look="views",
    )
    assert "values are right, but it allocated 1 new storage(s); wanted at most 0" in message
    assert "new storages by: aten.stack ×1 (16 bytes)" in message and message.endswith("look again at: views")
    assert "has shape (2,), wanted (4,)" in failure({"f": lambda x: x[:2]}, "f", None, lambda x: x)
    assert "dtype torch.int64, wanted torch.float32" in failure(
        {"f": lambda x: x.long()}, "f", None, lambda x: x
    )
    assert "1 of 4 values off; the worst, at [2]: 9.0, wanted 2.0" in failure(
        {"f": lambda x: torch.tensor([0.0, 1, 9, 3])}, "f", None, lambda x: x
    )
    assert "changed its input 0 in place" in failure({"f": lambda x: x.mul_(2)}, "f", None, lambda x: x * 2)
    assert "does not share the storage of input 0" in failure(
        {"f": lambda x: x.clone()}, "f", None, lambda x: x, match=check.Match(view_of=0)
    )
    assert "made the CPU wait 1 time(s)" in failure(
        {"f": lambda x: x.sum().item()}, "f", None, [6.0], budget={"syncs": 0}
    )
    assert "by: Tensor.numpy ×1; what NumPy computes, no counter sees" in failure(
        {"f": lambda x: torch.from_numpy(x.numpy() + 1)}, "f", None, lambda x: x + 1, budget={"syncs": 0}
    )


def test_contiguous_is_told_with_its_stride() -> None:
    case = [check.case(torch.arange(6.0).reshape(2, 3))]
    message = failure({"f": lambda x: x.t()}, "f", case, lambda x: x.t(), match=check.Match(contiguous=True))
    assert "values are right, but the result is not contiguous (stride (1, 3))" in message
    with check.through(against(f=lambda x: x.t().contiguous())):
        check.function("f", case, lambda x: x.t(), match=check.Match(contiguous=True))
    assert "not contiguous" in failure({"f": lambda x: 1}, "f", case, [1], match=check.Match(contiguous=True))


def test_exceptions_are_told_with_their_line() -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        return x.nothing  # type: ignore[attr-defined, no-any-return]

    message = failure({"f": broken}, "f", None, lambda x: x)
    assert "raised AttributeError" in message and "in broken: return x.nothing" in message
    assert "wanted ValueError" in failure(
        {"f": lambda x: x}, "f", [check.case(torch.ones(2), raises=ValueError)]
    )
    assert "raised TypeError" in failure(
        {"f": lambda x: len(3)}, "f", [check.case(torch.ones(2), raises=ValueError)]
    )  # type: ignore[arg-type]
    assert "raised SystemExit" in failure({"f": lambda x: exit(0)}, "f", None, lambda x: x)

    def stub(x: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError()

    assert "not written yet" in failure({"f": stub}, "f", None, lambda x: x)
    for wanted in (ValueError, RuntimeError):  # NotImplementedError is a RuntimeError, and no answer
        assert "not written yet" in failure({"f": stub}, "f", [check.case(2, raises=wanted)])


def test_gradients_are_compared() -> None:
    def wrong(x: torch.Tensor) -> torch.Tensor:
        return x * x.detach()

    x = torch.arange(1.0, 5.0, requires_grad=True)
    assert "the result is right, but the gradient of input 0" in failure(
        {"f": wrong}, "f", [check.case(x)], lambda x: x * x, match=check.Match(grads=True)
    )
    assert "graph back to the inputs was cut" in failure(
        {"f": lambda x: x.detach() ** 2}, "f", [check.case(x)], lambda x: x * x, match=check.Match(grads=True)
    )
    with check.through(against(f=lambda x: x**2)):
        check.function(
            "f", [check.case(x)], lambda x: x * x, match=check.Match(grads=True), budget={"saved_bytes": 16}
        )


def test_drive_runs_where_the_learner_is() -> None:
    def drive(f: Any, x: torch.Tensor, count: Any) -> list[Any]:
        return [f(x), count(f, x).operators]

    with check.through(against(f=lambda x: x * 2)):
        check.function("f", [check.case(torch.ones(2))], lambda x: [x * 2, 1], drive=drive)
    assert "wanted" in failure(
        {"f": lambda x: x + x + 0}, "f", [check.case(torch.ones(2))], lambda x: [x * 2, 1], drive=drive
    )


def test_verify_sees_every_report() -> None:
    with check.through(against(f=lambda x: x + 1)):
        check.function(
            "f",
            [check.case(i) for i in range(5)],
            verify=lambda reports: None if [r.value for r in reports] == [1, 2, 3, 4, 5] else "no",
        )
    assert "only 1 of 5" in failure(
        {"f": lambda x: 1}, "f", [check.case(i) for i in range(5)], verify=lambda r: "only 1 of 5"
    )


def test_what_should_raise_is_looked_at_last() -> None:
    cases = [check.case(0, raises=ValueError), check.case(1), check.case(2)]
    seen: list[int] = []

    def verify(reports: list[check.Report]) -> str | None:
        seen.extend(r.args[0] for r in reports)
        return None if reports[0].value == 1 else "the value is wrong"

    assert "the value is wrong" in failure({"f": lambda x: x + 1}, "f", cases, verify=verify)
    assert "wanted ValueError" in failure({"f": lambda x: x}, "f", cases, verify=verify)
    assert set(seen) == {1, 2}


def test_values() -> None:
    with (
        check.through(against(answers={"a": 1, "b": ..., "c": 2})),
        pytest.raises(check.CheckFailed) as caught,
    ):
        check.value("answers", {"a": 1, "b": 5, "c": 7})
    assert (
        "1 of 3 right" in str(caught.value)
        and "no answer for: b" in str(caught.value)
        and "not so: c" in str(caught.value)
    )
    assert "5" not in str(caught.value) and "7" not in str(caught.value), (
        "the message must not give answers away"
    )
    with check.through(against(answers={"a": 1})):
        check.value("answers", lambda: {"a": 1})


def test_odd_answers_fail_and_end_nothing() -> None:
    x = torch.arange(4.0)
    meta = failure({"f": lambda x: torch.empty(4, device="meta")}, "f", [check.case(x)], lambda x: x)
    assert "on device meta, wanted cpu" in meta, "a meta tensor equals nothing"
    assert "wanted 3" in failure({"f": lambda x: 3.0}, "f", [check.case(x)], [3])
    assert "wanted 9999" in failure({"f": lambda x: 10**28}, "f", [check.case(x)], [10**28 - 1])
    assert "wanted 1.5" in failure({"f": lambda x: {frozenset()}}, "f", [check.case(x)], [1.5])
    strings = failure({"f": lambda x: np.array(["a", "b"])}, "f", [check.case(x)], [1.5])
    assert "cannot be read as plain data" in strings
    unforeseen = failure(
        {"f": lambda x: None}, "f", [check.case(x)], verify=lambda reports: reports[0].value[0]
    )
    assert "returned None" in unforeseen and "docstring" in unforeseen
    assert (
        len(failure({"f": lambda x: "x" * 10**6}, "f", [check.case(x)], verify=lambda r: r[0].value)) < 5_000
    )


def test_words_and_open_answers(capsys: pytest.CaptureFixture[str]) -> None:
    with check.through(against(answers={"a": "View ", "b": None, "c": ...})):
        check.value("answers", {"a": "view"})
    assert capsys.readouterr().out == "✓ answers: 1 of 1 right; 2 others not answered yet\n"
    with check.through(against(answers={"ratio": "1.4X", "so": True, "n": 3.0000000001})):
        check.value("answers", {"ratio": "1.4×", "so": "yes", "n": 3.0})


def test_difference_and_brief() -> None:
    assert difference([1, 2], (1, 2)) is None and difference(0.1 + 0.2, 0.3) is None
    assert difference(True, 1) is not None and difference("a", "b") is not None
    assert difference(torch.tensor([float("nan")]), torch.tensor([float("nan")])) is None
    assert difference(torch.tensor([float("nan")]), torch.tensor([1.0])) is not None
    assert difference({"a": 1}, {"a": 1, "b": 2}) == "the result lacks ['b']"
    assert (
        brief(torch.zeros(2, 50)) == "float32 tensor (2, 50)"
        and brief(torch.tensor([1, 2])) == "tensor([1, 2])"
    )


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.int64]
)
@pytest.mark.parametrize("asked", [None, 0.0, 1e-2])
def test_closeness_is_that_of_assert_close(dtype: torch.dtype, asked: float | None) -> None:
    """At both sides of the tolerance, with NaN and infinities; ours does not import what theirs does."""
    tenths = {torch.float16: 1e-3, torch.bfloat16: 1.6e-2, torch.float64: 1e-7}.get(dtype, 1.3e-6)
    seen = set()
    for off in (0.0, 0.3 * tenths, 3 * tenths, 5e-3, 3e-2):
        want = torch.tensor([1000.0, -3.0, 0.0, float("inf") if dtype.is_floating_point else 0.0]).to(dtype)
        got = (want.to(torch.complex128 if dtype.is_complex else torch.float64) * (1 + off)).to(dtype)
        if dtype != torch.int64:
            got[2] = want[2] = float("nan")
        try:
            torch.testing.assert_close(got, want, rtol=asked, atol=asked, equal_nan=True)
            same = True
        except AssertionError:
            same = False
        assert (difference(got, want, rtol=asked, atol=asked) is None) == same, (dtype, off)
        seen.add(same)
    assert seen == {True, False}


def test_run_all_goes_on_after_an_exercise_that_is_not_begun(
    monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """In a learner's notebook it is said, once a cell; where it must fail (Validate, grading) it is an error."""
    shell = types.SimpleNamespace(user_ns_hidden={}, execution_count=3)
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    main = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setattr("helpers.check.judge.screen", lambda *_: None)
    monkeypatch.delenv("COURSE_BUILD", raising=False)
    monkeypatch.delenv("NBGRADER_EXECUTION", raising=False)
    exec("def double(x):\n    raise NotImplementedError()", vars(main))
    for _ in range(2):
        check.function("double", [check.case(2)], lambda x: 2 * x)
    assert capsys.readouterr().out.count("✗ double(2): not written yet. Replace") == 1
    monkeypatch.setenv("NBGRADER_EXECUTION", "validate")
    with pytest.raises(check.CheckFailed, match="not written yet"):
        check.function("double", [check.case(2)], lambda x: 2 * x)
    monkeypatch.delenv("NBGRADER_EXECUTION")
    exec("def double(x):\n    return x", vars(main))
    with pytest.raises(check.CheckFailed, match="wanted 4"):
        check.function("double", [check.case(2)], lambda x: 2 * x)


class _Hashed(type):
    ran: ClassVar[list[str]] = []

    def __hash__(cls) -> int:
        cls.ran.append("a type's hash")
        return 0


class _Whole(int, metaclass=_Hashed):
    pass


class _Float(np.float32):
    def item(self, *of: Any) -> Any:
        _Hashed.ran.append("item")
        return 1.0


class _Pair(complex):
    @property
    def real(self) -> Any:
        _Hashed.ran.append("real")
        return 1.0


class _Set(set[int]):
    def __iter__(self) -> Any:
        _Hashed.ran.append("iter")
        return iter([1])


def test_nothing_of_a_subclass_runs_when_a_result_is_read() -> None:
    """What it does then, nobody counts."""
    values = [0, [_Whole(2)], _Float(3.0), _Pair(4.0), _Set({5}), _Whole(6)]
    _Hashed.ran.clear()
    data = encode(values)
    assert _Hashed.ran == []
    assert decode(data) == [0, [2], 3.0, 4.0, {5}, 6]


def test_an_answers_own_names_on_what_reads_its_report_do_not_run() -> None:
    ran: list[str] = []

    def spoils(x: torch.Tensor) -> torch.Tensor:
        was = x.clone()
        x.detach = x.untyped_storage = lambda: ran.append("input") or was  # type: ignore[method-assign, assignment, func-returns-value]
        sys.stdout.getvalue = lambda: ran.append("stdout") or ""  # type: ignore[attr-defined, func-returns-value]
        return x.add_(1).clone()

    cases = [check.case(torch.zeros(3))]
    assert "changed its input 0" in failure({"f": spoils}, "f", cases, lambda x: x + 1)
    assert ran == []


def test_what_is_collected_cannot_fill_a_result_any_more() -> None:
    kept: list[Any] = []

    class Cycle:
        def __del__(self) -> None:
            self.out.fill_(1.0)

    def later(x: torch.Tensor) -> torch.Tensor:
        cycle = Cycle()
        cycle.me, cycle.out = cycle, torch.zeros_like(x)  # type: ignore[attr-defined]
        kept.append([[] for _ in range(3000)])
        return cycle.out

    assert "wanted 1" in failure({"f": later}, "f", [check.case(torch.zeros(3))], lambda x: x + 1)
