"""What the screen lets pass and what it refuses; that it says so in the visible test, and when graded."""

import argparse
import ast
import re
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from helpers import check, count
from helpers.check import private
from helpers.check.screen import screen
from helpers.classroom import master as masters
from helpers.classroom.build import find
from helpers.classroom.runner import Runner
from helpers.simulator.graphs import CUDAGraph
from helpers.simulator.streams import Event, Stream
from tests.corpus.hostile import SCREENED
from tests.test_build import GOOD, write

SUBMISSIONS = sorted((Path(__file__).parent / "submissions").glob("*/*/*.py"))

OPEN = {
    "dotted imports": "import torch.nn.functional as F\nfrom collections.abc import Callable\nfrom __future__ import annotations",
    "usual modules": "import math, itertools, functools, operator, copy, hashlib, statistics, random, numpy as np\nmath.pi",
    "torch's public parts": "from torch.func import vmap\nfrom torch.utils.checkpoint import checkpoint\ncheckpoint(vmap(f), x)",
    "operators with private names": "torch._foreach_add_(xs, 1)\ntorch._int_mm(a, b)\ntorch.ops.aten._to_copy(x)\ntorch._fused_adamw_(p)",
    "private names of one's own": "class A(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n        self._x = 1\n    def get(self, other):\n        return self._x + other._x + self._buffers['b'] + self.__dict__['c']",
    "a context": "class F(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        ctx._kept = x\n        ctx.save_for_backward(x)\n        return x",
    "special methods": "class A:\n    def __enter__(self):\n        return self.inner.__enter__()\n    def __exit__(self, *a):\n        return self.inner.__exit__(*a)\nA.__name__",
    "a slot": "class N:\n    __slots__ = ('_next',)\ndef f(n):\n    return n._next",
    "a class method": "class A:\n    _made = 0\n    @classmethod\n    def make(cls):\n        cls._made += 1",
    "what exercises are about": "x._base\nx.untyped_storage()._cdata\nlayer._parameters\nx._version\ny.grad_fn._saved_self",
    "attributes of what it is given": "def f(layer, p):\n    layer.weight = p\n    p.grad = None\n    del p.grad\n    f.calls = 1",
    "kernels": "import triton\nimport triton.language as tl\n@triton.jit\ndef k(x, N: tl.constexpr):\n    tl.store(x, tl.math.exp(tl.load(x)))\nk[(triton.cdiv(4, 2),)](x, N=triton.next_power_of_2(3))",
    "settings": "torch.backends.cudnn.benchmark = False",
    "an alias": "F = torch.nn.functional\naten = torch.ops.aten\ndef f(x):\n    return F.relu(aten.neg(x))",
    "classes handed on": "def f(x, kind=torch.nn.Linear):\n    return isinstance(x, (torch.Tensor, kind)) and type(x) is torch.Tensor",
    "getattr of a literal": "getattr(node, 'args', ())\ngetattr(os, 'sched_setaffinity', None)\nhasattr(x, 'grad')",
    "getattr over literals": "def f(layer, other):\n    for name in ('weight', 'bias'):\n        setattr(layer, name, getattr(other, name))",
    "eval of literals": "LINES = ['x.t()', 'x[1:]']\nanswers = {line: eval(line) for line in LINES}\ncount(eval, 'x + 1', {'x': x})",
    "a known __import__": "random = __import__('random').Random(1)",
    "reading of psutil": "import psutil\np = psutil.Process()\np.cpu_affinity(), p.memory_info().rss, p.threads(), p.num_threads()\npsutil.cpu_count(logical=False), psutil.virtual_memory().available",
    "processors": "import os, glob\nos.sched_setaffinity(0, {1})\nos.environ['OMP_NUM_THREADS'] = '2'\nglob.glob('/proc/self/task/*')",
    "a name like a builtin's": "def f(input, id, type):\n    return input",
    "modern Python": "def f(xs):\n    if (n := len(xs)) and n > 2:\n        match xs:\n            case [first, *_]:\n                return f'{first!r:>4}'\n    def g():\n        nonlocal n\n        n += 1\n    return lambda: g",
    "a script's end": "if __name__ == '__main__':\n    print(f(3))",
    "hooks": "h = x.register_hook(lambda g: g * 2)\nlayer.register_forward_hook(f)\nh.remove()",
    "noise": "import sys, warnings\nprint('noise', file=sys.stderr)\nwarnings.warn('noise')",
    "texts": "row = '{:>8}'\n('{:>8}' * 3).format(*xs)\nrow.format(x)\nclass T:\n    def format(self):\n        return self.format()",
    "patterns": "class P:\n    pass\nmatch x:\n    case P(a, b):\n        pass\n    case int(n) | str(n):\n        pass\n    case Q(x=a):\n        pass",
    "a class of its own": "type(x)(a, b)\nx.__class__(a)\nimport functools\ndef d(f):\n    @functools.wraps(f)\n    def g():\n        pass\n    return g",
    "collecting": "import gc, weakref, sys\ngc.collect()\nweakref.ref(x)\nsys.getsizeof(x)",
    "helpers": "from helpers import count, simulate\nfrom helpers.timing import format_seconds\ncount(f, x).copies",
}  # fmt: skip
#: what is refused → a part of the sentence
CLOSED = {
    "tl.load = print": "tl.load",
    "tl.core.builtin": "triton.language.core",
    "tl.str_to_ty(text, None)": "str_to_ty",
    "import subprocess": "subprocess",
    "import threading\nthreading.Thread(target=f)": "threading.Thread",
    "from concurrent.futures import ThreadPoolExecutor": "concurrent",
    "import ctypes": "ctypes",
    "import numpy as np\nnp.ctypeslib.as_array": "ctypeslib",
    "x.numpy().ctypes.data": "ctypes",
    "import gc\ngc.get_objects()": "gc.get_objects",
    "sys._getframe()": "sys._getframe",
    "import sys as s\ns.modules['torch']": "sys.modules",
    "torch.sys.modules": "sys",
    "import psutil\npsutil.Process(1).rlimit(psutil.RLIMIT_DATA, (1, 1))": "rlimit",
    "import psutil as p\np.RLIMIT_DATA": "of `psutil` an answer may use",
    "import psutil\nfor p in psutil.process_iter():\n    pass": "of `psutil` an answer may use",
    "from psutil import Process\nProcess(1).nice(19)": "nice",
    "from psutil import Process\nProcess(1).cpu_affinity([0])": "cpu_affinity",
    "from psutil import Process\nf = Process(1).cpu_affinity\nf([0])": "cpu_affinity",
    "p.suspend()": "suspend",
    "p.terminate()": "terminate",
    "getattr(p, 'send_signal')(9)": "send_signal",
    "match p:\n    case Process(rlimit=f):\n        f(2, (1, 1))": "rlimit",
    "from torch import *\nload('f')": "torch.load",
    "def f(sys):\n    pass": "another meaning",
    "from torch.utils._python_dispatch import _disable_current_modes": "_python_dispatch",
    "with torch._C._ExcludeDispatchKeyGuard(keys):\n    pass": "private name",
    "torch.ops.aten.add.Tensor.redispatch(keys, x)": "redispatch",
    "op._op_dk(key, x)": "_op_dk",
    "def f(self):\n    return self._gpu": "_gpu",
    "class A:\n    def get(self):\n        return self._gpu": "_gpu",
    "event.record(SimpleNamespace(_lane=1))": "_lane",
    "match stream:\n    case object(_gpu=gpu):\n        pass": "_gpu",
    "f.__closure__[0]": "__closure__",
    "gpu.synchronize.__self__": "__self__",
    "object.__getattribute__(gpu, 'x')": "__getattribute__",
    "x.__class__ = Mine": "__class__",
    "try:\n    f()\nexcept ValueError as e:\n    e.__traceback__.tb_frame": "tb_frame",
    "g.gi_frame": "gi_frame",
    "weakref.finalize._registry": "_registry",
    "torch.equal = f": "torch.equal",
    "torch.Tensor.untyped_storage = f": "untyped_storage",
    "T = torch.Tensor\nT.add = f": "T.add",
    "type(gpu).host = []": "type(gpu).host",
    "K = type(gpu)\nK.host = []": "K.host",
    "from helpers import check\ncheck.function = f": "helpers.check",
    "import helpers.counters": "helpers.counters",
    "import helpers": "helpers",
    "def patch(m):\n    m.equal = f\npatch(torch)": "hands the module",
    "setattr(torch, 'equal', f)": "torch.equal",
    "for name in names:\n    getattr(torch, name)": "only its run",
    "getattr(torch, '_C')": "_C",
    "operator.attrgetter('_gpu')(s)": "attrgetter",
    "class A:\n    def get(self):\n        return self._machine": "_machine",
    "class A:\n    _nodes = ()\n    def none(self):\n        self._nodes = ()": "_nodes",
    "def put(self, name, value):\n    setattr(self, name, value)": "only its run",
    "class K:\n    def __reduce__(self):\n        return (lambda: t), (), (None, {'x': 1})": "__reduce__",
    "class K:\n    def __new__(cls):\n        return t\n    def __getstate__(self):\n        return None, {'x': 1}": "__getstate__",
    "torch.ops.quantized.linear_dynamic_fp16(x, w)": "torch.ops.quantized",
    "torch.DispatchKeySet(torch.DispatchKey.Python)": "torch.DispatchKeySet",
    "from torch import ExcludeDispatchKeyGuard": "ExcludeDispatchKeyGuard",
    "graph.call_method('__globals__', (x,))": "call_method",
    "graph.placeholder('x=f()')": "placeholder",
    "graph.call_function(f, (x,), {'a=g()': 1})": "call_function",
    "node.target = 'x; f()'": "node.target",
    "for t in ['1']:\n    def f():\n        return eval(t)": "only its run",
    "[t for t in ['1']]\neval(t)": "only its run",
    "LINES = ['x']\nLINES.append(y)\n[eval(t) for t in LINES]": "only its run",
    "map(getattr, xs, names)": "getattr",
    "'{0._gpu}'.format(s)": "private name",
    "eval(text)": "only its run",
    "e = eval": "eval",
    "for t in ['torch._C']:\n    eval(t)": "`eval` on a text that uses `_C`",
    "__import__('gc' + '')": "only its run",
    "__import__('subprocess')": "subprocess",
    "def f(exec):\n    pass\nexec('1')": "exec",
    "globals()['x']": "globals",
    "open('f')": "open",
    "__builtins__": "__builtins__",
    "get_ipython().events": "get_ipython",
    "%time f()": "command to IPython",
    "def f(:\n    pass": "not Python",
    "torch.library.custom_op('a::b')": "torch.library",
    "DataLoader(data, num_workers=2)": "DataLoader",
    "torch.save(x, path)": "torch.save",
    "K = type(A)\nK('N', (), d)": "makes a class",
    "A.__class__('N', (), d)": "makes a class",
    "class M(type):\n    pass": "derives from `type`",
    "class A(metaclass=torch.autograd.function.FunctionMeta):\n    pass": "FunctionMeta",
    "match x:\n    case K(y):\n        pass": "by position",
    "K = f()\nmatch x:\n    case K(y):\n        pass": "by position",
    "import functools\nfunctools.wraps(W())(K)": "decorator",
    "import functools\n@functools.wraps(W())\nclass K:\n    pass": "decorator",
    "str.format(text, x)": "`format` on a text",
    "('{0.' + '_gpu}').format(x)": "`format` on a text",
    "x" + ".y" * 2000: "cannot read",
    "from torch.distributed import TCPStore": "TCPStore",
    "class A:\n    def __float__(self):\n        return f()": "__float__",
    "class A:\n    __len__ = f": "write `def __len__",
    "A.__len__ = f": "A.__len__",
    "x.to_mkldnn()": "to_mkldnn",
    "x.numpy().tofile(path)": "tofile",
    "from torch.utils.data import IterDataPipe": "IterDataPipe",
}  # fmt: skip


@pytest.mark.parametrize("what", OPEN)
def test_what_exercises_need_is_open(what: str) -> None:
    assert screen(OPEN[what]) is None


@pytest.mark.parametrize("source", CLOSED)
def test_the_rest_is_refused_in_one_sentence(source: str) -> None:
    lesson = "05_streams_and_double_buffering" if "library" in source else None  # open in lesson 21
    said = screen("# a line above\n" + source, lesson)
    assert said is not None and CLOSED[source] in said
    assert re.fullmatch(r"Line ([1-9]) .*[a-z`…)]\.", said), "one sentence that names the line"
    assert ". " not in said and int(said.split()[1]) <= 1 + len(source.splitlines())


@pytest.mark.parametrize("cell", SCREENED)
def test_attacks_that_worked_where_nothing_stopped_them_are_refused(cell: str) -> None:
    assert screen(cell, "01_storage_and_stride", ["import torch"])


def test_what_an_earlier_cell_could_have_changed_is_not_known() -> None:
    """A list, a loop's name, a module's other name: what a cell means depends on those before it."""
    before = "import string\nW = string\ndef put():\n    global t\n    t = LINES[0] = 'f()'"
    for cell in (
        "LINES = ['1']\nput()\nfor i in LINES:\n    eval(i)",
        "for t in ['1']:\n    put()\n    eval(t)",
    ):
        assert screen(cell) is None
        assert "only its run" in (screen(cell, None, [before], [before]) or "")
    assert "string" in (screen("W.Formatter()", None, [before], [before]) or "")


@pytest.mark.parametrize("kind", [Stream, Event, CUDAGraph])
def test_nothing_that_a_sealed_gpu_hands_out_shows_its_inside(kind: type) -> None:
    """No __dict__, and none of its private names open, also where an answer calls a thing of the simulator's `self`."""
    own = {name for name in dir(kind) if name[0] == "_" != name[1]}
    assert "__dict__" not in dir(kind) and own
    for name in own:
        cell = f"class A:\n    {name} = 1\n    def get(self):\n        return self.{name}"
        assert screen(cell), name


def test_a_lesson_opens_what_it_is_about() -> None:
    source = "fast = torch.compile(f)"
    assert screen(source, "11_torch_compile") is None and screen(source) is None
    assert "torch.compile" in (screen(source, "01_storage_and_stride") or "")
    for source in ("import triton", "import triton.language as tl", "from triton import jit"):
        assert screen(source, "21_a_kernel_of_your_own") is None
        assert "triton" in (screen(source, "19_attention") or "")
    assert screen("tl = [1]", "19_attention") is None and screen("tl.append(1)", "19_attention") is None


@cache
def said_of(path: Path) -> str | None:
    return screen(path.read_text(), path.parent.parent.name)


def test_no_right_answer_and_no_reference_is_refused() -> None:
    for path in SUBMISSIONS:
        if path.stem.startswith("right_"):
            assert said_of(path) is None, path
    for path in find([]):
        master = masters.read(path)
        for cell in master.cells:
            if cell.kind == "exercise":
                assert screen(cell.source, master.name) is None, (master.name, cell.exercise)


def test_a_refused_answer_of_the_collection_earns_nothing() -> None:
    """Honest mistakes are judged by what they do: what the screen refuses says "dishonest", or is one of six."""
    honest = 0
    for path in SUBMISSIONS:
        if said_of(path):
            first = path.read_text().splitlines()[0]
            assert first.endswith("earns 0"), path
            honest += "dishonest" not in first
    assert honest <= 6


def test_a_refused_answer_is_not_run(runner: Runner, tmp_path: Path) -> None:
    master = masters.read(write(tmp_path, GOOD))
    marker = tmp_path / "ran"
    refused = f"import torch, pathlib\npathlib.Path({str(marker)!r}).touch()\ndef twice(x):\n    return x * 2"
    score = runner.grade(master, "twice", refused)
    assert score.earned == 0 and not marker.exists()
    assert {v.text for v in score.verdicts.values()} == {screen(refused)}


def test_the_visible_test_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(x: Any) -> Any:
        return x * 2

    cells = ["", "import gc\ngc.freeze()\ndef twice(x):\n    return x * 2", "answers = {}", "twice(3)"]
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(twice=twice, answers={}, _ih=cells))  # type: ignore[arg-type]
    with pytest.raises(check.CheckFailed, match=r"Line 2 uses `gc\.freeze`"):
        check.function("twice", [check.case(2)], expect=[4])
    check.value("answers", {})
    cells.append("def twice(x):\n    return x * 2")
    check.function("twice", [check.case(2)], expect=[4])


@pytest.mark.parametrize(
    "use",
    [
        "put(x, 1)",
        "K._put(x, 1)",
        "(lambda self: self._n)(x)",
        "setattr(x, '_n', 1)",
        "[x for x._n in [1]]",
        "inside(x)",
        "x.__dict__['_n']",
    ],
)
def test_private_names_are_of_ones_own_objects(use: str) -> None:
    """Whatever calls itself self: the run asks whose it is."""
    answer = """
def put(self, n):
    self._n = n
def inside(self):
    self.__dict__["_n"] = 1
class K:
    def __init__(self):
        self._n = 1
    def _put(self, n):
        self._n += n
"""
    names: dict[str, Any] = {"__name__": "__main__", private.GUARD: private.own, private.WHEN: private.when}
    exec(compile(private.guarded(ast.parse(answer)), "<cell>", "exec"), names)  # noqa: S102
    names["x"] = names["K"]()
    mine = compile(private.guarded(ast.parse(use, mode="exec")), "<cell>", "exec")
    exec(mine, names)  # noqa: S102
    names["x"] = argparse.Namespace(_n=1)
    with pytest.raises(AttributeError, match="is a private name of Namespace, which is not yours"):
        exec(mine, names)  # noqa: S102
    assert vars(names["x"]) == {"_n": 1}


def test_what_pytorch_calls_where_nothing_is_counted_is_refused_as_it_runs() -> None:
    """It is called in the open first, to learn the length; what it does there counts."""
    answer = """
class Row:
    def __len__(self):
        return 2
    def __getitem__(self, i):
        "A number."
        sums.append(x.sum())
        return [1.0, 2.0][i]
"""
    names: dict[str, Any] = {"__name__": "__main__", private.WHEN: private.when}
    names |= {"x": torch.ones(3), "sums": (sums := list[torch.Tensor]())}
    exec(compile(private.guarded(ast.parse(answer)), "<cell>", "exec"), names)  # noqa: S102
    row = names["Row"]()
    assert [row[0], row[1], len(row)] == [1.0, 2.0, 2]
    sums.clear()
    with pytest.raises(RuntimeError, match="where nothing is counted"), count() as counts:
        torch.tensor(row)
    assert counts.operators == len(sums)
