"""Kernels in Triton's interpreter: what is counted of them, how far pointers reach, and what of Triton's inside is relied on."""

import contextlib
import functools
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from helpers import kernels
from helpers.kernels import Memory, OutOfBounds, language
from helpers.kernels.interpreter import NeedsTriton, _Absent
from helpers.kernels.on_cpu import tl, triton
from helpers.lessons.a_kernel_of_your_own import experiments
from helpers.lessons.a_kernel_of_your_own.explorer import traffic_explorer
from helpers.lessons.attention import masks

needs_triton = pytest.mark.skipif(not kernels.available(), reason="Triton is not installed (extra `kernels`)")
KEPT: list[Any] = []
TWO = tl.constexpr(2.0) if kernels.available() else 2.0


@triton.jit
def copy_kernel(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n), mask=at < n)


@triton.jit
def total_kernel(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, BLOCK)
    tl.atomic_add(out, tl.sum(tl.load(x + at, mask=at < n, other=0.0)))


@triton.jit
def row_by_row_kernel(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, BLOCK)
    for row in range(0, 3):
        start = tl.load(x + row)  # a comparison of integers, and one of floats; a mask that is a number
        mask = (at < n) & (tl.program_id(0) + row < 2) & (start > 0.5)
        tl.store(out + row * n + at, start + at, mask=mask)
        tl.store(out + 2 * n + at, start, mask=(row == 2) & (start > 0.5))


@triton.jit
def number_kernel(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    for at in range(0, 3):
        tl.store(out + at, tl.load(x + at, mask=at < n, other=0))
        tl.store(out + 3 + at, tl.load(x + at, mask=at < n, other=BLOCK))
        tl.store(out + 6 + at, tl.load(x + at, mask=at < n))


@triton.jit
def lanes_kernel(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n))


@triton.jit
def reaching_kernel(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + 1)


@triton.jit
def keeping_kernel(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    KEPT.append(1)
    tl.store(out + tl.arange(0, BLOCK), 1.0)


@triton.jit
def handle_kernel(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    x.handle.set_attr("kept", 1)
    tl.store(out + tl.arange(0, BLOCK), 1.0)


@triton.jit
def two_texts_kernel(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """
    def two_texts_kernel(x, out, n, BLOCK: tl.constexpr):
        KEPT.append(1)
    #"""
    tl.store(out + tl.arange(0, BLOCK), 1.0)


def undecorated(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    tl.store(out + tl.arange(0, BLOCK), 1.0)


def keep(block: Any) -> Any:
    KEPT.append(block)
    return block


KEEP: Any = tl.constexpr(keep) if kernels.available() else keep


@triton.jit
def default_kernel(x, out, n, BLOCK: tl.constexpr, put=keep):  # type: ignore[no-untyped-def]
    tl.store(out + tl.arange(0, BLOCK), put(1.0))


@triton.jit
def constant_kernel(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    tl.store(out + tl.arange(0, BLOCK), KEEP.value(1.0))


@triton.jit
def larger(a, b):  # type: ignore[no-untyped-def]
    KEPT.append(1)
    return tl.maximum(a, b)


@triton.jit
def combining_kernel(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    tl.store(out, tl.reduce(tl.load(x + tl.arange(0, BLOCK)), 0, larger))


@triton.jit
def scanning_kernel(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.associative_scan(tl.load(x + at), 0, larger))


@triton.jit
@functools.wraps(tl.sum)
def triton_s_own_kernel(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    KEPT.append(1)


@needs_triton
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8])
def test_elements_bytes_and_lanes(dtype: torch.dtype) -> None:
    x, out = torch.arange(10).to(dtype), torch.zeros(10, dtype=dtype)
    with kernels.watch() as seen:
        copy_kernel[(3,)](x, out, 10, BLOCK=4)
    assert torch.equal(x, out)
    (launch,) = seen.launches
    assert (launch.kernel, launch.programs) == ("copy_kernel", 3)
    size = dtype.itemsize
    assert launch.loads == {"x": kernels.Moved(10, 10 * size, 12)}
    assert launch.stores == {"out": kernels.Moved(10, 10 * size, 12)}
    assert (seen.loads, seen.stores, seen.bytes, seen.programs) == (10, 10, 20 * size, 3)
    assert seen.lanes == 12


@needs_triton
def test_a_block_s_mask_and_a_number_s_are_one() -> None:
    """As Triton's compiler has it, and not the interpreter that comes with it."""
    out = torch.zeros(9)
    with kernels.watch() as seen:
        row_by_row_kernel[(1,)](torch.tensor([1.0, 0.0, 4.0]), out[:6], 2, BLOCK=4)
    assert out.tolist() == [1, 2, 0, 0, 4, 4, 4, 4, 0]
    assert [one.refused for one in kernels.compiled(seen, whole=False)] == [""]


@needs_triton
def test_a_block_of_which_nothing_is_loaded_has_lanes() -> None:
    x, out = torch.zeros(8), torch.zeros(8)
    with kernels.watch() as seen:
        lanes_kernel[(1,)](x, out, 0, BLOCK=8)
    assert (seen.loads, seen.lanes) == (0, 8)


@triton.jit
def doubled(x):  # type: ignore[no-untyped-def]
    return x * TWO


@triton.jit
def doubling_kernel(x, out, n, scale, BLOCK: tl.constexpr, WIDE: tl.constexpr):  # type: ignore[no-untyped-def]
    total = 0.0
    for start in range(0, n, BLOCK):
        total += tl.sum(doubled(tl.load(x + start + tl.arange(0, BLOCK))).to(WIDE)) * scale
    tl.store(out, total)


@triton.jit
def number_then_block_kernel(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    total = 0.0
    for start in range(0, n, BLOCK):
        total = total + tl.load(x + start + tl.arange(0, BLOCK))
    tl.store(out + tl.arange(0, BLOCK), total)


@triton.jit
def outside_kernel(x, out):  # type: ignore[no-untyped-def]
    tl.store(out, tl.sum(tl.load(x + tl.arange(0, len(KEPT) + 16))))


@needs_triton
def test_triton_s_own_compiler_takes_a_kernel_for_a_gpu_or_says_why_not() -> None:
    x = torch.ones(64)
    with kernels.watch() as seen:
        for _ in range(2):
            doubling_kernel[(1,)](x, torch.zeros(1), 64, 0.5, BLOCK=16, WIDE=tl.float32)
        number_then_block_kernel[(1,)](x, torch.zeros(16), 64, BLOCK=16)
        outside_kernel[(1,)](x, torch.zeros(1))
    fine, turns, outside = kernels.compiled(seen)
    assert (fine.name, fine.refused, fine.spilled_bytes) == (
        "doubling_kernel",
        "",
        0,
    ) and 8 < fine.registers < 64
    assert "Loop-carried variable total" in turns.refused and "range(0, n, BLOCK)" in turns.refused
    assert "KEPT is not defined" in outside.refused and outside.registers == 0
    assert [odd.refused for odd in kernels.compiled(seen, whole=False)] == [
        "",
        turns.refused,
        outside.refused,
    ]


@needs_triton
def test_what_does_not_fit_into_registers_is_spilled() -> None:
    with kernels.watch() as seen:
        copy_kernel[(1,)](torch.ones(8), torch.ones(8), 8, BLOCK=8)
    asked = seen.launches[0].program
    assert asked is not None
    program = asked()
    assert program.signature == {"x": "*fp32", "out": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    small, large = kernels.compile_all(
        [replace(program, constants={"BLOCK": many}) for many in (128, 1 << 16)], num_warps=4
    )
    assert small.spilled_bytes == 0 and small.registers < 32
    assert large.registers > small.registers or large.spilled_bytes > 0


@needs_triton
def test_an_atomic_addition_loads_and_stores() -> None:
    x, out = torch.arange(5.0), torch.ones(1)
    with kernels.watch() as seen:
        total_kernel[(1,)](x, out, 5, BLOCK=8)
    assert out.item() == 11 and (seen.loads, seen.stores) == (6, 1)


@needs_triton
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int8])
def test_masked_lanes_without_other_hold_no_number(dtype: torch.dtype) -> None:
    x, out = torch.arange(5).to(dtype), torch.zeros(8, dtype=dtype)
    lanes_kernel[(1,)](x, out, 5, BLOCK=8)
    assert torch.equal(out[:5], x)
    assert out[5:].isnan().all() if dtype.is_floating_point else (out[5:] == -1).all()


@needs_triton
def test_one_number_that_is_masked_is_other_and_0_is_no_less_than_another() -> None:
    out = torch.zeros(9)
    number_kernel[(1,)](torch.ones(3), out, 1, BLOCK=8)
    assert out[:7].tolist() == [1, 0, 0, 1, 8, 8, 1] and out[7:].isnan().all()


@needs_triton
def test_a_pointer_reaches_no_further_than_the_tensors() -> None:
    x, room = torch.arange(5.0), torch.zeros(64)
    out = torch.empty(0).set_(torch.zeros(5).untyped_storage(), 0, (5,))
    with pytest.raises(OutOfBounds, match="stores 3 of 8 elements .* 1 behind the end of out's memory"):
        reaching_kernel[(1,)](x, out, 5, BLOCK=8)
    assert not out.any() and not room.any(), "nothing of such a store is written"


@needs_triton
def test_only_kernels_read_what_is_put_into_memory() -> None:
    x = torch.arange(12.0).view(3, 4).t()
    with Memory() as memory:
        shown = memory.put(x)
        assert (shown.shape, shown.stride(), shown.dtype) == (x.shape, x.stride(), x.dtype)
        assert shown.isnan().all() and (shown + 1).isnan().all()
        out = torch.empty(12)
        copy_kernel[(1,)](shown, out, 12, BLOCK=16)
    assert torch.equal(memory.get(out), torch.arange(12.0))
    assert torch.equal(memory.get(shown), x) and torch.equal(x.t().flatten(), torch.arange(12.0))


@needs_triton
@pytest.mark.parametrize(
    "kernel",
    [keeping_kernel, handle_kernel, default_kernel, constant_kernel, combining_kernel, scanning_kernel, triton_s_own_kernel],
)  # fmt: skip
def test_what_the_compiler_has_not_is_refused_where_kernels_alone_compute(kernel: Any) -> None:
    with pytest.raises(language.NotTriton), Memory():
        kernel[(1,)](torch.zeros(4), torch.zeros(4), 4, BLOCK=4)
    assert not KEPT


@needs_triton
def test_what_runs_is_the_function_and_no_text_within_it() -> None:
    for kernel in (two_texts_kernel, triton.jit(two_texts_kernel.fn), triton.jit(undecorated)):
        out = torch.zeros(4)
        kernel[(1,)](torch.zeros(4), out, 4, BLOCK=4)
        assert out.all() and not KEPT


@needs_triton
@pytest.mark.parametrize("held", [True, False])
def test_what_runs_is_what_is_held_at_a_launch(held: bool) -> None:
    """A kernel's function can be another one before a launch, and while the grid is asked for."""

    @triton.jit
    def kernel(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        tl.store(out + tl.arange(0, BLOCK), 1.0)

    def grid(names: Any) -> tuple[int]:
        kernel.fn, names["n"] = keeping_kernel.fn, keep
        return (1,)

    if held:
        with Memory(), pytest.raises(language.NotTriton, match="of keeping_kernel uses"):
            kernel[grid](torch.zeros(4), torch.zeros(4), 4, BLOCK=4)
    else:
        keeping, keeping_kernel.fn = keeping_kernel.fn, kernel.fn
        out = torch.zeros(4)
        with Memory() as memory:
            keeping_kernel[(1,)](torch.zeros(4), out, 4, BLOCK=4)
        keeping_kernel.fn = keeping
        assert memory.get(out).all()
    assert not KEPT


@needs_triton
def test_a_method_of_one_s_own_is_none_of_a_block() -> None:
    @triton.jit
    def kernel(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        tl.store(out + tl.arange(0, BLOCK), tl.load(x + tl.arange(0, BLOCK)).ravel())

    tl.tensor.ravel = tl.tensor.kept = keep
    with Memory():
        kernel[(1,)](torch.zeros(4), torch.zeros(4), 4, BLOCK=4)
    assert not KEPT and tl.tensor.ravel is not keep and not hasattr(tl.tensor, "kept")


@needs_triton
def test_a_block_s_methods_are_there_where_triton_was_loaded_for_the_compiler_before() -> None:
    source = "import triton\nfrom helpers.kernels.on_cpu import tl\nassert tl.tensor.sum.__get__(1)"
    subprocess.run([sys.executable, "-c", source], check=True, capture_output=True)


@needs_triton
def test_where_kernels_are_closed_none_is_interpreted_until_they_are_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "triton.runtime.interpreter"
    monkeypatch.delitem(sys.modules, name)
    kernels.close()
    with pytest.raises(ImportError):
        triton.jit(undecorated)
    monkeypatch.undo()
    kernels.close()  # too late
    assert triton.jit(undecorated)


@needs_triton
def test_no_way_of_triton_s_makes_code_of_a_text() -> None:
    from triton.runtime import interpreter

    assert not {"_compile_and_exec", "_transform_ast", "rewrite_ast"} & {*dir(interpreter.FunctionRewriter)}


@needs_triton
def test_a_list_is_no_argument_of_a_kernel() -> None:
    with Memory(), pytest.raises(language.NotTriton, match="a list as `n`"):
        copy_kernel[(1,)](torch.zeros(4), torch.zeros(4), [4], BLOCK=4)


@needs_triton
def test_a_kernel_tells_its_numbers_to_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    """Not by what it prints, nor by what NumPy calls to write or to warn, nor by an error that the host lets pass."""

    @triton.jit
    def telling(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        numbers = tl.load(x + tl.arange(0, BLOCK))
        print(numbers)
        tl.store(out + tl.arange(0, BLOCK), tl.exp(numbers * 1e9))
        if n:
            tl.load(x + tl.sum(numbers).to(tl.int32))

    formatter: Any = {"float": lambda number: str(keep(number))}
    with np.printoptions(formatter=formatter), np.errstate(all="call", call=lambda *told: keep(told)):
        with Memory():
            telling[(1,)](torch.arange(4.0), torch.zeros(4), 0, BLOCK=4)
        with pytest.raises(OutOfBounds), Memory(), contextlib.suppress(OutOfBounds):
            telling[(1,)](torch.arange(4.0), torch.zeros(4), 1, BLOCK=4)
    assert not KEPT and not capsys.readouterr().out


@needs_triton
def test_two_elements_behind_one_address_are_two() -> None:
    @triton.jit
    def in_pairs(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        at, pair = tl.arange(0, BLOCK), tl.pointer_type(tl.int64)
        tl.store(out.to(pair) + at, tl.load(x.to(pair) + at))

    x, out = torch.arange(8.0), torch.zeros(8)
    with kernels.watch() as seen:
        in_pairs[(1,)](x, out, 8, BLOCK=4)
    assert torch.equal(x, out) and (seen.loads, seen.stores, seen.bytes) == (8, 8, 64)
    with Memory() as memory:
        shown = memory.put(x)
        with pytest.raises(OutOfBounds, match="8 bytes an element lies in memory that kernels know with 4"):
            copy_kernel[(1,)](shown.view(torch.int64), out.view(torch.int64), 4, BLOCK=4)
        copy_kernel[(1,)](shown, made := torch.zeros(4, dtype=torch.int64), 4, BLOCK=4)
        with pytest.raises(OutOfBounds, match="4 bytes"):
            memory.get(made.view(torch.float32))


@needs_triton
def test_the_notebook_gets_no_names_of_the_interpreter() -> None:
    copy_kernel[(1,)](torch.zeros(4), torch.zeros(4), 4, BLOCK=4)
    assert {"TensorHandle", "interpreter_builder", "_interpreter"}.isdisjoint(globals())


@needs_triton
def test_what_is_relied_on_of_triton() -> None:
    """After another Triton: which of the names that helpers.kernels.interpreter wraps are gone."""
    from triton.runtime import interpreter
    from triton.runtime.jit import JITFunction

    for of, names in (
        (
            interpreter.InterpreterBuilder,
            "create_masked_load create_masked_store create_atomic_rmw create_atomic_cas create_icmpSLT create_fcmpOLT",
        ),
        (interpreter.InterpretedFunction, "run __call__"),
        (interpreter.TritonSemantic, "load"),
        (interpreter.ASTTransformer, "visit_Assign visit_Compare"),
        (interpreter.ReduceOps, "generic_reduce"),
        (interpreter.ScanOps, "generic_scan"),
        (
            interpreter,
            "TensorHandle _get_np_dtype InterpreterError GridExecutor _patch_lang interpreter_semantic _InterpreterComparison",
        ),
    ):
        assert [name for name in names.split() if not hasattr(of, name)] == []
    assert isinstance(tl.sum, interpreter.InterpretedFunction) and not isinstance(tl.sum, JITFunction)


def test_without_triton_kernels_can_be_written_and_say_what_is_missing() -> None:
    triton, tl = _Absent("triton"), _Absent("triton.language")

    @triton.jit
    def kernel(x, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        tl.store(x, 1)

    with pytest.raises(NeedsTriton, match="`kernel` needs Triton"):
        kernel[(1,)](torch.zeros(1), BLOCK=1)


@pytest.mark.parametrize(("installed", "enough"), [("3.6.0", False), ("3.7.0+git1", True), ("4.0.0", True)])
def test_a_triton_that_is_too_old_is_as_none(
    monkeypatch: pytest.MonkeyPatch, installed: str, enough: bool
) -> None:
    monkeypatch.setattr("helpers.kernels.interpreter.version", lambda package: installed)
    assert kernels.available() is enough


def test_without_triton_the_lesson_shows_what_was_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.arange(100.0)
    monkeypatch.setattr(kernels, "available", lambda: False)
    kept = experiments.ran("add", lambda: x, want=x)
    assert (kept.seen.programs, experiments.masked(kept.seen), kept.same) == (4, 28, True)
    said = experiments.tried("no fake, compiled", lambda x: x, x)
    assert experiments.kinds({"add": said}) == {"add": "an error: which shape?"}


def test_the_explorer_counts_as_the_formula_says() -> None:
    explorer = traffic_explorer(m=40, k=24, n=64, rows=16, columns=32)
    assert explorer.tiling.loads == experiments.tile_loads(40, 24, 64, 16, 32) == 40 * 24 * 2 + 24 * 64 * 3
    assert (explorer.tiling.programs, explorer.tiling.masked) == (6, 6 * 16 * 32 - 40 * 64)
    explorer.set(rows=64, program=60)
    assert explorer.tiling.at == (0, 1) and "2 programs" in explorer.tiling.facts
    assert explorer.static().png()


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("causal", masks.causal),
        ("sliding window of 256", masks.window(16)),
        ("eight documents", masks.documents([64] * 8)),
    ],
)
def test_the_share_beside_a_recorded_time_is_that_of_the_rule(name: str, rule: masks.Rule) -> None:
    """8,192 tokens in blocks of 128, made 16 times smaller."""
    left = masks.computed(masks.block_mask(rule, 512, 8))
    assert experiments._COMPUTED[f"FlexAttention, {name}"] == left
