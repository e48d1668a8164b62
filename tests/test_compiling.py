"""helpers.compiling against PyTorch's own tools (explain, CompileCounter, run_and_get_code) and by hand."""

from __future__ import annotations

import copy
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers import compiling, count
from helpers.compiling import guarding
from helpers.compiling.generated import called, nested, readable
from helpers.compiling.listening import TRACE
from helpers.compiling.reading import broke, operators
from helpers.compiling.torches import explained
from helpers.text import places
from helpers.text.seconds import Speedup


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


# ---- programs ------------------------------------------------------------------------------------


def straight(x: Tensor, k: float = 2.0) -> Tensor:
    y = torch.relu(x) * k
    return (y + 1).view(-1)


def talk(x: Tensor) -> Tensor:
    print("hello")  # a break
    return x + 1


def broken(x: Tensor) -> Tensor:
    y = talk(torch.relu(x) * 2)
    if y.sum() > 0:  # a break
        y = y - 1
    return y.view(-1)


def in_a_loop(x: Tensor) -> Tensor:
    for _ in range(3):
        x = x + 1
        torch._dynamo.graph_break()
    return x


def reads(x: Tensor) -> Tensor:
    return x * x.max().item()


def many(x: Tensor) -> Tensor:
    x = x.clone()
    x[0] = 1.0
    x += 2
    y = -x @ x.t()
    q, r = torch.split(y, 1)
    return torch.cat([q, r]).sum(0, keepdim=True) < F.gelu(y)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.scale = nn.Linear(4, 8), 3.0

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = F.gelu(self.first(x)) * self.scale
        return x if mask is None else x.masked_fill(mask, 0)


def counts(
    fn: Callable[..., Any], calls: list[tuple[Any, ...]], backend: Any = "eager", dynamic: bool | None = None
) -> dict[str, Any]:
    with compiling.watch(backend) as w:
        fast = torch.compile(fn, dynamic=dynamic)
        for args in calls:
            fast(*args)
    return w.counts()


def line_of(fn: Callable[..., Any], text: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(
        n
        for n, t in enumerate(lines[fn.__code__.co_firstlineno :], fn.__code__.co_firstlineno + 1)
        if text in t
    )


# ---- explain -------------------------------------------------------------------------------------


@pytest.mark.parametrize("fn", [straight, talk, broken, reads, many, in_a_loop])
def test_graphs_are_those_of_torchs_own_explain(fn: Callable[..., Any]) -> None:
    x = torch.rand(2, 2)
    report = compiling.explain(fn, x)
    torch._dynamo.reset()
    theirs = torch._dynamo.explain(fn)(x)
    torch._dynamo.reset()
    assert len(report.graphs) == theirs.graph_count == report.runs
    calls = [[n for n in g.graph.nodes if n.op.startswith("call_")] for g in theirs.graphs]
    assert [len(g.operators) for g in report.graphs] == [len(c) for c in calls]
    for graph, nodes in zip(report.graphs, calls, strict=True):
        for name, node in zip(graph.operators, nodes, strict=True):
            target = node.target if isinstance(node.target, str) else node.target.__name__
            assert name.rpartition(".")[2] == target.removesuffix("_"), (name, target)
        assert str(Path(__file__).parent) not in graph.code and "test_compiling.py:" in graph.code
    assert torch.equal(torch.as_tensor(report.result), torch.as_tensor(fn(x)))


def test_a_break_has_its_line_and_its_reason() -> None:
    report = compiling.explain(broken, torch.rand(4))
    first, second = report.breaks
    assert first.where == f"test_compiling.py:{line_of(talk, 'hello')} in talk"
    assert first.line.startswith('print("hello")')
    assert first.reason == "Failed to trace builtin operator" and not first.skipped
    assert second.where == f"test_compiling.py:{line_of(broken, 'if y.sum')} in broken"
    assert second.reason == "Data-dependent branching"
    assert [g.operators for g in report.graphs] == [
        ("torch.relu", "mul"), ("add",), ("Tensor.sum", "gt"), ("sub", "Tensor.view"),
    ]  # fmt: skip
    assert report.counts()["graph_breaks"] == 2 and report.counts()["runs"] == 4
    assert [c.function for c in report.compilations].count("broken, resumed") == 2


def test_a_function_given_up_is_named(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    report = compiling.explain(in_a_loop, torch.rand(4))
    assert not report.graphs and report.breaks[0].skipped and len(report.failures) == 1
    assert "graph break in loop" in report.failures[0].failed
    assert "not compiled" in repr(report)
    compiling.explain(reads, torch.rand(4))  # torch logs a warning with the paths of the machine
    assert "Graph break" not in capsys.readouterr().err + caplog.text


def test_guards_read() -> None:
    report = compiling.explain(Model(), torch.rand(2, 4))
    said = [str(g) for g in report.guards]
    assert said[0] == "x: Tensor, torch.float32, cpu, requires_grad=False, size [2, 4], stride [4, 1]"
    assert "self.scale: self.scale == 3.0" in said and "mask: mask is None" in said
    assert any(g.startswith("self.first.weight: Parameter") for g in said)
    assert any(g.startswith("grad mode on, autocast off, 1 thread") for g in said)
    assert not [g for g in said if "L['" in g or "G['" in g or "___" in g or " at 0x" in g or "dynamo_" in g]
    line = next(g.line for g in report.guards if g.about == "self.scale")
    assert line == "x = F.gelu(self.first(x)) * self.scale"


def test_guards_of_dynamic_shapes_and_plain_text() -> None:
    report = compiling.explain(torch.compile(straight), torch.rand(3))
    assert "k: k == 2.0" in map(str, report.guards)
    with compiling.watch("eager") as watched:
        torch.compile(straight, dynamic=True)(torch.rand(3))
    assert any("size [any]" in g.check for g in watched.guards)
    assert any(g.check == "2 <= x.size()[0]" and g.about == "x" for g in watched.guards)
    assert guarding.plain("L['self']._modules['a']._parameters['w']") == "self.a.w"
    assert list(guarding.guards("nothing of the kind\n+- NEW_KIND: L['x'] is odd")) == [
        compiling.Guard("NEW_KIND", "x", "x is odd")
    ]


def test_tables_are_the_same_each_time_and_say_their_evidence() -> None:
    first, second = (compiling.explain(broken, torch.rand(4)) for _ in range(2))
    assert repr(first) == repr(second)
    assert "[live (CPU)] 4 graphs, 2 graph breaks, 7 operators, 0 recompiles" in repr(first)
    assert "<table>" in first._repr_html_() and "≈" not in repr(first)
    with compiling.watch() as nothing:
        pass
    assert "nothing was compiled" in repr(nothing)


def test_the_functions_own_error_passes_and_nonsense_is_refused() -> None:
    def bad(x: Tensor) -> Tensor:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        compiling.explain(bad, torch.rand(1))
    with pytest.raises(TypeError, match="function or a module"):
        compiling.explain(3)  # type: ignore[arg-type]
    with pytest.raises(compiling.CannotCompile, match="no backend 'nope'.*eager"):
        counts(straight, [(torch.rand(2),)], backend="nope")


# ---- watch ---------------------------------------------------------------------------------------


def test_recompiles_and_why() -> None:
    x = torch.rand(3)
    with compiling.watch("eager") as w:
        fast = torch.compile(straight)
        for n in range(2, 12):
            fast(torch.rand(n))
        fast(x.double())
        with torch.no_grad():
            fast(x)
    assert [r.reason for r in w.recompiles] == [
        "tensor 'x' size mismatch at index 0. expected 2, actual 3",
        "tensor 'x' dtype mismatch. expected Float, actual Double",
        "GLOBAL_STATE changed: grad_mode",
    ]
    assert len(w.recompiles[1].reasons) == 2 and w.recompiles[2].id == "0/3"
    assert w.recompiles[0].where == f"straight (test_compiling.py:{straight.__code__.co_firstlineno})"
    assert w.counts()["compilations"] == 4 and w.runs == 12


def test_counts_are_those_of_torchs_own_counter() -> None:
    from torch._dynamo.testing import CompileCounter

    sizes = [(torch.rand(n),) for n in (2, 3, 4, 7)]
    for fn in (straight, talk):
        theirs = CompileCounter()
        torch._dynamo.reset()
        fast = torch.compile(fn, backend=theirs)
        for args in sizes:
            fast(*args)
        torch._dynamo.reset()
        ours = counts(fn, sizes)
        assert (ours["graphs"], ours["operators"]) == (theirs.frame_count, theirs.op_count)
    assert counts(straight, sizes, dynamic=True)["compilations"] == 1
    assert counts(straight, sizes, dynamic=False)["compilations"] == 4


def test_at_the_limit_the_rest_runs_as_python(capsys: pytest.CaptureFixture[str]) -> None:
    calls = [(torch.rand(n),) for n in range(2, 14)]
    found = counts(straight, calls, dynamic=False)
    limit = torch._dynamo.config.recompile_limit
    assert found["compilations"] == found["runs"] == limit and found["failures"] == 1
    with compiling.watch("eager") as w:
        fast = torch.compile(straight, dynamic=False)
        for args in calls:
            fast(*args)
    assert w.failures[0].function == "straight" and "limit" in w.failures[0].failed
    assert "hit config" not in capsys.readouterr().err


def test_a_call_that_goes_round_the_compiler_has_no_run() -> None:
    fast = torch.compile(straight)

    def sly(x: Tensor) -> Tensor:
        return fast(x) if len(x) == 2 else straight(x)

    with compiling.watch("eager") as w:
        for n in (2, 3, 4):
            sly(torch.rand(n))
    assert w.counts()["compilations"] == 1 and w.runs == 1


def test_a_backend_of_ones_own() -> None:
    seen = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        seen.append(graph)
        return graph.forward

    found = counts(straight, [(torch.rand(3),)], backend=backend)
    assert len(seen) == found["graphs"] == found["runs"] == 1


def test_the_report_is_there_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), compiling.watch("eager") as w:
        torch.compile(straight)(torch.rand(2))
        raise ZeroDivisionError
    assert len(w.graphs) == 1


# ---- nothing left behind -------------------------------------------------------------------------


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    trace = logging.getLogger(TRACE)
    compiling.kernels(straight, torch.rand(4))  # what is imported now is not left behind later
    backend = getattr(torch.compiler, "get_default_backend", str)  # torch 2.11 has none
    before = (list(trace.handlers), trace.level, dict(os.environ), backend())
    config = torch._dynamo.config.get_config_copy()  # type: ignore[attr-defined]
    inductor = torch._inductor.config.get_config_copy()  # type: ignore[attr-defined]
    leaf = torch.rand(4, requires_grad=True)
    with compiling.watch("eager") as w:
        torch._dynamo.config.recompile_limit = 1
        torch.compile(straight)(leaf)
    compiling.explain(broken, torch.rand(4))
    compiling.kernels(straight, leaf)
    with pytest.raises(RuntimeError), compiling.watch("inductor"):
        torch.compile(straight)(leaf)
        raise RuntimeError
    assert len(w.graphs) == 1 and leaf.grad is None
    assert (list(trace.handlers), trace.level, dict(os.environ), backend()) == before
    assert torch._dynamo.config.get_config_copy() == config  # type: ignore[attr-defined]
    assert torch._inductor.config.get_config_copy() == inductor  # type: ignore[attr-defined]
    assert torch._dynamo.convert_frame.FRAME_COUNTER == 0 and not torch._dynamo.convert_frame.input_codes.seen
    assert not list(tmp_path.iterdir())


def test_counters_stand_aside_and_go_on() -> None:
    def both(x: Tensor) -> Tensor:
        x = x.clone()
        x[0] = 1.0
        return x.to("cpu") * x.tolist()[0]  # what a count replaces: a compiler must not meet its stand-ins

    plain = compiling.explain(both, torch.rand(4))
    leaf, tolist = torch.rand(4, requires_grad=True), torch.Tensor.tolist
    with count() as counted:
        stand_in = torch.Tensor.tolist
        under = compiling.explain(both, torch.rand(4))
        steps = counts(lambda x: (x * x).sum(), [(leaf,)], backend="aot_eager")
        assert torch.Tensor.tolist is stand_in
        (leaf * leaf).sum().backward()
        leaf.tolist()
    assert repr(under) == repr(plain)
    assert steps["compilations"] == 1 and steps["graph_breaks"] == 0
    assert (
        counted.by_operator["aten.sum"] == 1
        and counted.saved_bytes == 16
        and counted.sync_by == {"Tensor.tolist": 1}
    )
    assert torch.Tensor.tolist is tolist or torch.Tensor.tolist == tolist


def test_importing_costs_no_compiler() -> None:
    code = "import sys, helpers.compiling; sys.exit('torch._dynamo' in sys.modules or 'torch._inductor' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent.parent, check=False)
    assert done.returncode == 0


# ---- kernels -------------------------------------------------------------------------------------


def test_kernels_and_their_code() -> None:
    x, w = torch.rand(64, 64), torch.rand(64, 64, requires_grad=True)
    one = compiling.kernels(lambda x: (x * 2 + 1).relu(), x)
    assert one.fused == ["cpp_fused_add_mul_relu_0"] and one.loops == one.count == 1 and not one.extern
    assert (
        "std::max" in one.bodies()["cpp_fused_add_mul_relu_0"] or "clamp_min" in one.code or "max" in one.code
    )
    product = compiling.kernels(lambda x, w: (x @ w).relu(), x, w.detach())
    assert product.extern == ["extern_kernels.mm"] and product.loops == 1 and len(product.sources) == 1
    both = compiling.kernels(lambda x, w: (x @ w).relu().sum(), x, w)
    assert len(both.sources) == 2 and both.extern == ["extern_kernels.mm"] * 2 and w.grad is None
    assert both.counts() == {
        "kernels": both.count,
        "fused": len(both.fused),
        "extern": 2,
        "loops": both.loops,
    }
    apart = compiling.kernels(lambda x: (x.sum(0), x.exp()), x)
    assert len(apart.fused) == 1 and apart.loops == 2  # one kernel on the CPU, two walks through memory
    broken_off = compiling.kernels(broken, torch.rand(4))
    assert len(broken_off.sources) == 4 and len(broken_off.bodies()) == len(broken_off.fused) == 4


def test_kernels_of_a_graph_with_a_constant_tensor() -> None:
    def masked(x: Tensor) -> Tensor:
        y = x.clone()
        y[x > 0.5] = 0  # the 0 is a tensor in the graph
        return y

    with compiling.watch("inductor") as w:
        result = torch.compile(masked)(torch.tensor([0.2, 0.7]))
    assert w.kernels.loops == 1 and result.tolist() == pytest.approx([0.2, 0.0])


def test_kernels_says_why_there_are_none() -> None:
    with pytest.raises(compiling.CannotCompile, match="no tensor operation"):
        compiling.kernels(lambda x: x, torch.rand(2))
    with pytest.raises(compiling.CannotCompile, match="graph break in loop"):
        compiling.kernels(in_a_loop, torch.rand(2))


def test_kernels_need_no_compiler_and_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    starts = []
    monkeypatch.setattr(subprocess.Popen, "__init__", lambda self, *a, **k: starts.append(a) or exit(1))  # type: ignore[func-returns-value]
    first = compiling.kernels(straight, torch.rand(40))
    assert compiling.kernels(straight, torch.rand(40)).code == first.code and not starts
    assert counts(straight, [(torch.rand(40),)], backend="inductor")["kernels"] == 1
    assert not list(tmp_path.iterdir())


def test_a_mode_reaches_inductor() -> None:
    x = torch.rand(8, 8)
    assert "triton.cudagraphs" in torch._inductor.list_mode_options("reduce-overhead")
    assert compiling.kernels(straight, x, mode="reduce-overhead").count == 1


_GENERATED = """
cpp_fused_add_0 = async_compile.cpp_pybinding(['float*'], r'''
{
    #pragma omp parallel num_threads(2)
    {
        for(int x0=0; x0<4; x0+=1)
        {
            for(int x1=0; x1<4; x1+=1)
            {
                out[x1] = 1;
            }
        }
        for(int x0=0; x0<4; x0+=1)
        {
            out[x0] = 2;
        }
    }
}
''')
triton_poi_fused_mul_1 = async_compile.triton('triton_poi_fused_mul_1', '''
def triton_poi_fused_mul_1(x): ...
''', device_str='cuda')
def partition_0(args):
    triton_poi_fused_mul_1.run(buf0, 4, stream=stream0)
def call(args):
    buf0 = empty_strided_cpu((4, ), (1, ), torch.float32)
    extern_kernels.mm(arg0_1, reinterpret_tensor(arg1_1, (4, 4), (1, 4), 0), out=buf0)
    cpp_fused_add_0(buf0)
    buf1 = torch.ops.aten.topk.default(buf0, 3)
    cpp_fused_add_0(buf1)
"""


def test_generated_code_is_read() -> None:
    assert list(called(_GENERATED)) == [
        ("triton_poi_fused_mul_1", True), ("extern_kernels.mm", False), ("cpp_fused_add_0", True),
        ("torch.ops.aten.topk.default", False), ("cpp_fused_add_0", True),
    ]  # fmt: skip
    kernels = compiling.Kernels((_GENERATED,))
    assert kernels.loops == 5 and kernels.count == 5
    assert nested("no loop") == 1
    assert list(called("cpp_fused_x_0 = async_compile.cpp(1\n}")) == [("cpp_fused_x_0", True)]


_BODY = """#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  kernel(const float* in_ptr0,
                       float* out_ptr0)
{
    std::atomic<int> inductor_cpu_integer_div_error{0};
    {
        {
            float tmp_acc0 = 0;
            for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(64L); x0+=static_cast<int64_t>(1L))
            {
                {
                    {
                        auto tmp0 = in_ptr0[static_cast<int64_t>(64L*x0 + ((static_cast<int64_t>(1L + x0) % static_cast<int64_t>(64L))))];
                        auto tmp1 = static_cast<float>(2.0);
                        auto tmp2 = static_cast<float>(tmp0);
                        auto tmp3 = std::max(tmp2, decltype(tmp2)(0));
                        tmp_acc0 = tmp_acc0 + float(tmp3 * tmp1);
                    }
                }
            }
            out_ptr0[static_cast<int64_t>(0L)] = tmp_acc0;
        }
    }
    inductor_cpu_throw_if_integer_div_error(inductor_cpu_integer_div_error);
}"""

_READABLE = """cpp_fused_x_0(const float* in_ptr0, float* out_ptr0) {
    {
        float tmp_acc0 = 0;
        for(int64_t x0=0; x0<64; x0+=1) {
            auto tmp0 = in_ptr0[64*x0 + ((1 + x0) % 64)];
            auto tmp1 = 2.0;
            auto tmp2 = static_cast<float>(tmp0);
            auto tmp3 = std::max(tmp2, 0);
            tmp_acc0 = tmp_acc0 + float(tmp3 * tmp1);
        }
        out_ptr0[0] = tmp_acc0;
    }
}"""


def test_a_kernel_to_read() -> None:
    assert readable("cpp_fused_x_0", _BODY) == _READABLE
    assert (
        readable("t", "import triton\n@triton.jit\ndef t(x):\n    pass") == "@triton.jit\ndef t(x):\n    pass"
    )
    written = compiling.kernels(lambda x: (x.softmax(-1), x @ x, x.roll(-1, 1)), torch.rand(8, 8))
    assert nested(written.readable) == written.loops and "static_cast" not in written.readable
    assert written.readable.count("{") == written.readable.count("}")


# ---- the real thing ------------------------------------------------------------------------------


def test_cold_and_warm_say_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real compilation through the C++ compiler; then again in what would be a new process."""
    from torch._dynamo.utils import counters
    from torch._inductor.utils import clear_caches, run_and_get_code

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))

    def program(x: Tensor) -> Tensor:
        return (x * 3).exp().sum(0)

    def run() -> compiling.Report:
        clear_caches()
        with compiling.watch() as w:
            w.result = torch.compile(program)(x)
        return w

    x = torch.rand(8, 8)
    counters.clear()
    cold, warm = run(), run()
    assert counters["inductor"]["fxgraph_cache_miss"] == counters["inductor"]["fxgraph_cache_hit"] == 1
    assert cold.kernels.code == warm.kernels.code and cold.kernels.count == 1
    assert cold.counts() == warm.counts()
    assert repr(cold) == repr(warm)
    torch.testing.assert_close(cold.result, program(x))
    theirs = run_and_get_code(torch.compile(program), x)[1]
    torch._dynamo.reset()
    assert list(cold.kernels.sources) == [
        text.partition("\n")[2] for text in theirs
    ]  # its first line is a number
    assert "AOT ID" in theirs[0] and str(tmp_path) not in cold.kernels.code
    written = compiling.kernels(program, x, vectors=True)
    assert written.fused == cold.kernels.fused and written.loops == cold.kernels.loops


def test_seconds() -> None:
    before = copy.deepcopy(dict(os.environ))
    found = compiling.seconds(straight, torch.rand(3), backend="eager")
    assert found.cold > found.gain.after_s[0] > 0 and found.warm > found.gain.after_s[0]
    assert "≈" in repr(found) and dict(os.environ) == before

    def gained(ratio: float, low: float, high: float) -> compiling.Seconds:
        """A call takes 3 s to compile and 2 s without."""
        return compiling.Seconds(3.0, 1.0, Speedup(ratio, low, high, 0.95, 30, "", before_s=(2.0,) * 30))

    assert gained(0.8, 0.7, 0.9).calls_to_pay() is None and "no faster" in gained(0.8, 0.7, 0.9).payback()
    assert gained(1.2, 0.9, 1.4).calls_to_pay() is None and "not clearly" in gained(1.2, 0.9, 1.4).payback()
    assert gained(2.0, 1.5, 4.0).calls_to_pay() == pytest.approx((2.0, 4.5))
    assert gained(2.0, 1.5, 4.0).payback().endswith("after some calls")
    assert gained(1.1, 1.01, 1.2).payback().endswith("after some calls to hundreds of calls")


def test_no_compiler_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def search(_: Any) -> str:
        from torch._inductor.exc import InvalidCxxCompiler

        raise InvalidCxxCompiler

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("torch._inductor.cpp_builder.cpp_compiler_search", search)
    with pytest.raises(compiling.CannotCompile, match="apt install g"), compiling.watch():
        torch.compile(lambda x: x * 5 - 1)(torch.rand(3, 5))


@pytest.mark.skipif(not shutil.which("g++"), reason="no C++ compiler")
@pytest.mark.parametrize("name", ["a course", "it's", 'two"quotes'])
def test_a_path_that_the_compiler_cannot_take_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / name))
    with pytest.raises(compiling.CannotCompile, match=f"{re.escape(str(tmp_path / name))} holds a space"):
        compiling.seconds(straight, torch.rand(3))


def test_other_faults_of_the_machine_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(text: str) -> None:
        with explained():
            raise RuntimeError(text)

    failed = "CppCompileError: C++ compile error\n\nCommand:\ng++ x.cpp\n\nOutput:\n"
    with pytest.raises(compiling.CannotCompile, match="temporary files.* is full"):
        fail(failed + "x.cpp:1: fatal error: when writing output to x.i: No space left on device")
    monkeypatch.setattr("torch.__file__", "/opt/my courses/torch/__init__.py")
    with pytest.raises(compiling.CannotCompile, match="/opt/my courses/torch holds a space.*VENV="):
        fail(failed + "ld: cannot find -ltorch")
    monkeypatch.undo()
    with pytest.raises(RuntimeError, match="expected ';'"):
        fail(failed + "x.cpp:1: error: expected ';'")  # no fault of the machine: shown as it is


def test_an_unknown_trace_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helpers.compiling.listening._WANTED", set())
    with pytest.raises(compiling.CannotCompile, match=torch.__version__.partition("+")[0]):
        compiling.explain(straight, torch.rand(2))


def test_cutting_off_the_trace_is_noticed() -> None:
    def sly(x: Tensor) -> Tensor:
        logging.getLogger(TRACE).handlers.clear()
        return x + 1

    handlers = list(logging.getLogger(TRACE).handlers)
    try:
        with pytest.raises(compiling.CannotCompile, match="compiled 1 graphs .* tells of 0"):
            counts(sly, [(torch.rand(2),)])
    finally:
        logging.getLogger(TRACE).handlers[:] = handlers


# ---- pieces --------------------------------------------------------------------------------------


def test_places() -> None:
    assert places.where("/tmp/ipykernel_12/345.py", 3) == "cell, line 3"
    assert places.where("<cell 4>", 2) == "cell, line 2"
    assert places.where("a/lib/site-packages/torch/nn/modules/linear.py", 9) == "torch/nn/modules/linear.py:9"
    assert places.where("some/where/model.py", 1) == "model.py:1"
    assert places.function("torch_dynamo_resume_in_train_at_3") == "train, resumed"


def test_operators_from_code() -> None:
    code = """class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[4]"):
        l_x_ = L_x_
        a: "f32[4]" = l_x_.view(2, 2);  l_x_ = None
        a += 1;  b = a;  a = None
        b[0] = 2.0;  setitem = b;  setitem = None
        c = ~b
        d = torch.ops.aten.mm(c, -1)
        e = self.layer(d)
        return (e,)"""
    assert operators(code) == ("Tensor.view", "iadd", "setitem", "invert", "torch.ops.aten.mm", "layer")
    assert operators("not python (") == operators("x = 1") == ()
    assert broke("nothing of the kind") is None


def test_in_a_grading_process(request: pytest.FixtureRequest) -> None:
    """A drive that compiles, in a child of a process that has imported torch and run nothing."""
    pytest.importorskip("jupytext")
    from helpers.classroom.judging import judge

    cells = ["import torch\ndef f(x):\n    y = x * 2\n    print('a')\n    return y + 1\n"]
    test = """
from helpers import check
import torch
def drive(f, x):
    import torch
    from helpers import compiling
    with compiling.watch("eager") as w:
        fast = torch.compile(f)
        fast(x), fast(x)
    return w.counts()
def as_wanted(reports):
    got = reports[0].value
    want = {"graphs": 2, "graph_breaks": 1, "operators": 2, "recompiles": 0, "runs": 4}
    return None if {k: got[k] for k in want} == want else str(got)
check.function("f", [check.case(torch.ones(3))], expect=None, drive=drive, verify=as_wanted)
"""
    with request.getfixturevalue("runner").notebook(cells) as notebook:
        verdict = judge(test, "f", notebook.ask)
    assert verdict.passed, verdict.text


def test_a_buffer_that_is_written_in_place_spoils_the_compiled_gradient() -> None:
    """Lesson 11 warns of it. When a torch has mended this, the lesson may say so."""

    class Counting(nn.Module):
        def __init__(self, in_place: bool) -> None:
            super().__init__()
            self.in_place, self.linear = in_place, nn.Linear(4, 4)
            self.register_buffer("steps", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.in_place:
                self.steps.add_(1)
            else:
                self.steps = self.steps + 1
            return self.steps * F.silu(self.linear(x))

    def gradient(in_place: bool, backend: str | None) -> torch.Tensor:
        torch._dynamo.reset()
        torch.manual_seed(0)
        model = Counting(in_place)
        run = torch.compile(model, backend=backend) if backend else model
        run(torch.ones(2, 4)).sum().backward()
        assert model.linear.weight.grad is not None
        return model.linear.weight.grad

    true = gradient(in_place=True, backend=None)
    assert torch.allclose(gradient(in_place=False, backend="aot_eager"), true)
    assert torch.allclose(gradient(in_place=True, backend="aot_eager"), 2 * true), "is it mended?"
