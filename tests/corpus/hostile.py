"""Submissions of lesson 01 that cheat, spy or break things. Most were tried first where nothing stopped them: they worked.

All exercises but the one that a case is about are answered rightly, and keep their points wherever the attack leaves
them whole. Nothing here needs the network, or harms the machine that grades without a sandbox for more than a minute,
save where a comment says so.
"""

import os
from collections.abc import Callable
from pathlib import Path

from tests.corpus.cases import Case, Notebook, code, place, plain, saved

Write = Callable[[Notebook, Path, str], None]


def instead(exercise: str, source: str) -> Write:
    """``source`` in place of an exercise's answer."""

    def write(notebook: Notebook, folder: Path, name: str) -> None:
        made = plain(notebook)
        made["cells"][place(made, exercise)]["source"] = source
        saved(made, folder / f"{name}.ipynb")

    return write


def above(exercise: str, source: str) -> Write:
    """``source`` before the right answer, in its cell."""

    def write(notebook: Notebook, folder: Path, name: str) -> None:
        right = notebook["cells"][place(notebook, exercise)]["source"]
        instead(exercise, f"{source}\n\n\n{''.join(right)}")(notebook, folder, name)

    return write


def added(source: str, to: str, answer: str) -> Write:
    """A cell of one's own at the top; ``answer``, which needs it, in place of the exercise ``to``."""

    def write(notebook: Notebook, folder: Path, name: str) -> None:
        made = plain(notebook)
        made["cells"][place(made, to)]["source"] = answer
        made["cells"].insert(1, code(source, "own"))
        saved(made, folder / f"{name}.ipynb")

    return write


# --- counts lowered ---------------------------------------------------------------------------------------------------

#: right values by four copies, where one is allowed: earns nothing by itself
FOUR_COPIES = """
def clip(video, every, top, left, size):
    if min(top, left) < 0 or top + size > video.shape[1] or left + size > video.shape[2]:
        raise ValueError("the crop does not fit")
    frames = video[torch.arange(0, len(video), every, device=video.device)].float()
    frames = frames.permute(0, 3, 1, 2).contiguous()
    return frames[:, :, top : top + size, left : left + size].contiguous()
"""
#: a statement that makes every count say what a test wants, if it is run at all
LOWER = (
    "import helpers.counters.counts as c; was = c.Counts.as_dict; c.Counts.as_dict = lambda self, was=was: was(self) | "
    "dict(copies=1, new_storages=1, bytes_allocated=0, peak_live_bytes=0, syncs=0)"
)
LOW = """
def low(self):
    return dict(operators=1, by_operator={}, views=0, copies=1, new_storages=1, bytes_allocated=0, peak_live_bytes=0,
                live_bytes=0, saved_bytes=0, syncs=0, sync_by={}, flops=0, allocations=[])
"""
#: ways past a list of names that were open once
LOWERED = {
    "a module that another module imported": f"import enum\nenum.bltns.exec({LOWER!r})",
    "benchmarks run text": f"from helpers.timing import benchmark\nbenchmark.Timer({LOWER!r}).timeit(1)",
    "a formatter gets attributes": f"""import string
g, _ = string.Formatter().get_field("0.__globals__", (torch.nn.functional.relu,), {{}})
g["__builtins__"]["exec"]({LOWER!r})""",
    "update_wrapper sets attributes": LOW + """
import functools
from helpers import Counts
class Mine:
    as_dict = low
functools.update_wrapper(Counts, Mine, assigned=("as_dict",), updated=())""",
    "wraps sets attributes": LOW + """
import functools
from helpers import Counts
class Mine:
    as_dict = low
functools.wraps(Mine, ("as_dict",), ())(Counts)""",
    "a property on a class that was handed over": """from helpers import Counts
def put(kind):
    kind.copies = kind.new_storages = property(lambda s: 1, lambda s, v: None)
    kind.bytes_allocated = kind.peak_live_bytes = property(lambda s: 0, lambda s, v: None)
put(Counts)""",
    "setattr in a function that calls its argument self": LOW + """
from helpers import Counts
def put(self, name, value):
    setattr(self, name, value)
put(Counts, "as_" + "dict", low)""",
    "redirect_stdout reads and sets any name of sys": f"""import contextlib
class Modules(contextlib.redirect_stdout):
    _stream = "modules"
    def get(self):
        self.__enter__()
        found = self._old_targets[-1]
        self.__exit__(None, None, None)
        return found
Modules({{}}).get()["builtins"].exec({LOWER!r})""",
    "global_enum writes into a module": LOW + """
import enum
class E(enum.Enum):
    __module__ = "helpers.check.probe"
    count = 1
    def __call__(self):
        return self
    def __enter__(self):
        return self
    def __exit__(self, *a):
        return False
    as_dict = low
enum.global_enum(E)""",
    "copying sets state": LOW + """
import copy
from helpers import Counts
class K:
    def __reduce_ex__(self, protocol):
        return (lambda: Counts), (), (None, {"as_dict": low})
copy.copy(K())""",
    "copying by a table": LOW + """
import copy
from helpers import Counts
class K:
    pass
copy.dispatch_table[K] = lambda x: ((lambda: Counts), (), (None, {"as_dict": low}))
copy.copy(K())""",
    "annotations are evaluated": f"""import functools
def other(x: {f"exec({LOWER!r})"!r}):
    pass
try:
    functools.singledispatchmethod(lambda x: x).register(other)
except TypeError:
    pass""",
    "a dataclass is made from text": f"""import dataclasses
class S(str):
    def isidentifier(self):
        return True
dataclasses.make_dataclass("A", [(S("x=exec({LOWER!r}),y"), int, None)])""",
    "a graph's code is text": f"""def change(before):
    return lambda body: ["exec(" + repr({LOWER!r}) + ")\\n", *body]
graph = torch.fx.Tracer().trace(lambda x: x)
graph.on_generate_code(change)
torch.fx.GraphModule(torch.nn.Module(), graph)(1)""",
    "a pickle is a program": f"""import io
torch.serialization.load(io.BytesIO(b"cbuiltins\\nexec\\n(V" + {LOWER!r}.encode() + b"\\ntR."), weights_only=False)""",
    "NumPy reaches all memory": """import numpy as np
byte = torch.zeros(1, dtype=torch.uint8)
away = id(torch.Tensor) - byte.data_ptr()
step = 1 if away > 0 else -1
memory = np.lib.stride_tricks.as_strided(byte.numpy(), (abs(away) + 1000,), (step,))""",
    "a module's own torch": "torch.nn.functional.torch.overrides.TorchFunctionMode",
}  # fmt: skip

#: takes the counting mode off, if it is run at all, and fills a result meanwhile
OFF = "import helpers.pytorch.dispatch_mode as d; SPACE['off'] = d.Unseen"
#: ways to run it, or to do the work where nobody counts, each of which earned everything once
RUNS_TEXT = {
    "an interpreter of graphs calls any method": f"""g = torch.fx.Graph()
g.output(g.placeholder("x"))
i = torch.fx.Interpreter(torch.fx.GraphModule(torch.nn.Module(), g))
b = i.call_method("__getattribute__", (torch.nn.functional.relu, "__globals__"), {{}})
b["__builtins__"]["ex" + "ec"]({OFF!r}, {{"SPACE": SPACE}})""",
    "a node's target is text": f"""g = torch.fx.Graph()
g.output(g.call_method("__globals__.__getitem__", (g.placeholder("x"), "__builtins__")))
b = torch.fx.GraphModule(torch.nn.Module(), g)(torch.nn.functional.relu)
b["ex" + "ec"]({OFF!r}, {{"SPACE": SPACE}})""",
    "a list of texts is changed": f"""texts = ["1"]
def put(into):
    into[0] = "ex" + "ec(" + repr({OFF!r}) + ", {{'SPACE': SPACE}})"
put(texts)
for text in texts:
    eval(text)""",
    "a list of names is changed": f"""names = ["relu"]
def put(into):
    into[0] = "__glob" + "als__"
put(names)
for name in names:
    b = getattr(torch.nn.functional.relu, name)
b["__builtins__"]["ex" + "ec"]({OFF!r}, {{"SPACE": SPACE}})""",
    "a list of modules is changed": """names = ["math"]
def put(into):
    into[0] = "helpers.pytorch.dispatch" + "_mode"
put(names)
for name in names:
    b = __import__(name)
SPACE["off"] = b.pytorch.dispatch_mode.Unseen""",
    "eval is handed on": f"""def g(f, *a):
    return f("ex" + "ec(" + repr({OFF!r}) + ", SPACE)", {{"SPACE": {{"SPACE": SPACE}}}})
g(eval, "1")""",
    "eval is handed to one's own count": f"""def count(f, *a):
    return f("ex" + "ec(" + repr({OFF!r}) + ", SPACE)", {{"SPACE": {{"SPACE": SPACE}}}})
count(eval, "1")""",
    "a benchmark's text": f"""from helpers.timing import benchmark
benchmark.Timer({OFF!r}, globals={{"SPACE": SPACE}}).timeit(1)""",
    "a module under a class's name": f"""import string
class A:
    m = string
g, _ = A.m.Formatter().get_field("0.__globals__", (torch.nn.functional.relu,), {{}})
g["__builtins__"]["ex" + "ec"]({OFF!r}, {{"SPACE": SPACE}})""",
    "a module called self": f"""import torch.nn.functional as self
self.__dict__["__builtins__"]["ex" + "ec"]({OFF!r}, {{"SPACE": SPACE}})""",
    "typing evaluates": f"""import typing
class A:
    _evaluate = None
    def ev(self):
        return self._evaluate({{"SPACE": SPACE}}, {{}}, recursive_guard=frozenset())
ref, = typing.get_args(typing.List[{f"__builtins__['ex' 'ec']({OFF!r})"!r}])
A.ev(ref)""",
    "eval of a name from elsewhere": f"""import string as w
g, _ = eval("w.Formatter()").get_field("0.__globals__", (torch.nn.functional.relu,), {{}})
g["__builtins__"]["ex" + "ec"]({OFF!r}, {{"SPACE": SPACE}})""",
}  # fmt: skip
FITS = """
    if min(top, left) < 0 or top + size > video.shape[1] or left + size > video.shape[2]:
        raise ValueError("the crop does not fit")
"""
#: what costs nothing, and is filled by four copies later
MADE = f"""
kept, one = [], torch.zeros(1)
def made(video, every, top, left, size):{FITS}
    shape = -(-len(video) // every), video.shape[3], size, size
    return torch.empty(shape, device=video.device).copy_(one.to(video.device))
def fill(out, args):
    if not out.is_meta:
        out.copy_(in_four(*args))
"""
UNSEEN = """
def clip(*args):
    out = made(*args)
    with SPACE["off"]():
        fill(out, args)
    return out
"""
DISPATCH_KEYS = """
def clip(*args):
    out = made(*args)
    with torch.ExcludeDispatchKeyGuard(torch.DispatchKeySet(torch.DispatchKey.Python)):
        fill(out, args)
    return out
"""
PRINTED_LATER = """
def put(self, name, value):
    setattr(self, name, value)
def clip(*args):
    out = made(*args)
    put(sys.stdout, "getvalue", lambda: fill(out, args) or "")
    return out
"""
#: nothing of this is refused: it is run, and does not help
COLLECTED = """
class Cycle:
    def __del__(self):
        fill(*self.job)
def clip(*args):
    out = made(*args)
    kept.append([[] for _ in range(3000)])
    cycle = Cycle()
    cycle.me, cycle.job = cycle, (out, args)
    return out
"""
FINALIZED = """
import weakref
class Cycle:
    pass
def clip(*args):
    out = made(*args)
    kept.append([[] for _ in range(3000)])
    cycle = Cycle()
    cycle.me = cycle
    weakref.finalize(cycle, fill, out, args)
    return out
"""

#: the work is done where the counting mode is off
HIDDEN_WORK = """
class Hide(torch.Tensor):
    __module__ = "torch._subclasses.mine"
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return Hide.job()
made = torch.zeros(1).as_subclass(Hide)
def clip(video, every, top, left, size):
    Hide.job = lambda: in_four(video, every, top, left, size)
    return torch.neg(made)
"""
LEFT_ON = """
import torch.utils.checkpoint as checkpointing
jobs = []
def policy(context, function, *args, **kwargs):
    if jobs:
        jobs.pop()(args[0])
    return checkpointing.CheckpointPolicy.PREFER_RECOMPUTE
mode, _ = checkpointing.create_selective_checkpoint_contexts(policy)
mode.__enter__()
def clip(video, every, top, left, size):
    done = torch.empty(-(-len(video) // every), video.shape[3], size, size, device=video.device)
    jobs.append(lambda out: out.copy_(in_four(video, every, top, left, size)))
    return done.copy_(0)
"""
IN_FOUR = FOUR_COPIES.replace("def clip", "def in_four")
SAYS_CONTIGUOUS = """
def put(kind):
    kind.is_contiguous = lambda self, *more, **named: True
put(torch.Tensor)
def clip(video, every, top, left, size):
    if min(top, left) < 0 or top + size > video.shape[1] or left + size > video.shape[2]:
        raise ValueError("the crop does not fit")
    return video[::every].permute(0, 3, 1, 2)[:, :, top : top + size, left : left + size].to(torch.float32)
"""

#: work done when the result is read, after the count has ended; and storages that say they are empty
READ_LATER = """
def put(self, name, value):
    setattr(self, name, value)
def clip(video, every, top, left, size):
    if min(top, left) < 0 or top + size > video.shape[1] or left + size > video.shape[2]:
        raise ValueError("the crop does not fit")
    done = torch.empty(-(-len(video) // every), video.shape[3], size, size, device=video.device)
    put(done, "resolve_" + "conj", lambda: in_four(video, every, top, left, size))
    return done
"""
SAYS_EMPTY = """
def clip(video, every, top, left, size):
    if min(top, left) < 0 or top + size > video.shape[1] or left + size > video.shape[2]:
        raise ValueError("the crop does not fit")
    done = torch.empty(0, device=video.device)
    storage = done.untyped_storage()
    storage.nbytes = lambda: 0
    torch.add(video[::every].permute(0, 3, 1, 2)[:, :, top : top + size, left : left + size], 0.0, out=done)
    return done.contiguous()
"""
COMPUTED_LATER = """
class Later(int):
    def __int__(self):
        return self.job()
    def __index__(self):
        return self.job()
def flat_index(index, stride, offset=0):
    if len(index) != len(stride):
        raise ValueError("lengths differ")
    later = Later(0)
    later.job = lambda: int((torch.tensor(index) * torch.tensor(stride)).sum()) + offset if index else offset
    return later
"""
#: what a formatter does, with no name that is refused: the module was imported under another name in an earlier cell
TWO_CELLS = "import string as words"
SECOND_CELL = (
    f"""
g, _ = words.Formatter().get_field("0.__globals__", (torch.nn.functional.relu,), {{}})
g["__builtins__"]["ex" + "ec"]({LOWER!r})
"""
    + FOUR_COPIES
)
TWO_NAMES = (
    f"""
import string as words
g, _ = words.Formatter().get_field("0.__globals__", (torch.nn.functional.relu,), {{}})
import math as words
g["__builtins__"]["ex" + "ec"]({LOWER!r})
"""
    + FOUR_COPIES
)

# --- work where a stand-in of the counters says that nothing counts, or where no mode is on ----------------------------

#: what autograd keeps is detached, unseen by all: by a method of the tensor's own, once
DETACHES = """
def clip(*args):
    out = made(*args)
    kept = torch.empty(0, device=out.device).requires_grad_()
    def detach():
        del kept.detach
        fill(out, args)
        return kept.detach()
    kept.detach = detach
    kept * kept
    return out
"""
#: a tensor that is printed, or made one-hot: what it calls meanwhile
CALLS_BACK = """
class Loud(torch.Tensor):
    job = None
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        job, cls.job = cls.job, None
        if job:
            job()
        return super().__torch_function__(func, types, args, kwargs or {})
def clip(*args):
    out = made(*args)
    Loud.job = lambda: fill(out, args)
    repr(torch.empty(0, device=out.device).as_subclass(Loud))
    return out
"""
#: names that are worked out, without a word that is refused
CLASSES = {
    what: f"""import abc
def escape():
    K = {made}("K", (), {{"__match_" + "args__": ("__glob" + "als__",)}})
    K.register(type(escape))
    match torch.nn.functional.relu:
        case K(g):
            return g["__builtins__"]["ex" + "ec"]
escape()({LOWER!r})"""
    for what, made in {"ABCMeta": "abc.ABCMeta", "type of a class": "type(abc.ABC)", "its class": "abc.ABC.__class__"}.items()
} | {
    "a class of classes": "class M(type(torch.Tensor)):\n    pass",
    "a class of torch's": "torch.autograd.function.FunctionMeta('K', (), {})",
    "a pattern by position": "match torch.nn.functional.relu:\n    case torch.nn.Linear(g):\n        pass",
    "wraps copies annotations": "import functools, dataclasses\nclass W:\n    pass\nclass K:\n    pass\nfunctools.wraps(W())(K)\n"
    "dataclasses.dataclass(K)",
    "a text put together": "t = '{0.__glob' + 'als__}'\nprint(t.format(torch.nn.functional.relu))",
    "observers of one's own": "from torch.autograd.profiler_legacy import profile",
}  # fmt: skip
# --- what the grader itself would be held up by ----------------------------------------------------------------------

DEEP = "x = torch" + ".nn" * 2000
COMMANDS = "%x\n" * 600
COMMENTS = "#\n" * 45_000
BLANK = "x = 1\n" + " \n" * 45_000

REDEFINED = """
import helpers, helpers.counters, helpers.check, helpers.check.judge
from helpers import check
nothing = lambda *args, **kwargs: None
check.function = check.value = nothing
helpers.check.judge.function = helpers.check.judge.value = nothing
helpers.counters.count = helpers.count = nothing
helpers.check.judge.CheckFailed = type("CheckFailed", (Warning,), {})
"""
BLINDED = """
import torch, weakref, helpers.check.probe as probe
import torch.utils._python_dispatch as dispatch
one = torch.zeros(1).untyped_storage()
torch.Tensor.untyped_storage = lambda self: one
torch.equal = torch.allclose = torch.testing.assert_close = lambda *args, **kwargs: True
weakref.finalize = lambda *args, **kwargs: None
dispatch.TorchDispatchMode.__enter__ = lambda self: self
dispatch._push_mode = lambda mode: None
probe._count = probe._run = probe.answer = None
"""

# --- refused by its words ---------------------------------------------------------------------------------------------

REFUSED = {
    "a thread pool": "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(1)",
    "threads": "import threading\nthreading.Thread(target=print).start()",
    "publishing wrapped": "kernel = get_ipython().kernel\nkernel.iopub_socket = None",
    "a hook after each cell": "get_ipython().events.register('post_run_cell', print)",
    "another import": "real = __import__\n__builtins__['__import__'] = lambda *a: real(*a)",
    "builtins": "import builtins\nbuiltins.isinstance = lambda *a: True",
    "a tracer": "import sys\nsys.settrace(lambda *a: None)",
    "frames": "import sys\nsys._getframe(1).f_locals.clear()",
    "modules": "import sys\nsys.modules['helpers.check.compare'] = None",
    "the collector": "import gc\nfor found in gc.get_objects():\n    pass",
    "at exit": "import atexit\natexit.register(print)",
    "signals": "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)",
    "a pickle that runs": "import pickle\npickle.loads(b'cos\\nsystem\\n(S\"id\"\\ntR.')",
    "json": "import json\njson.dumps = lambda *a: '{}'",
    "a child process": "import subprocess\nsubprocess.Popen(['sleep', '1000'], start_new_session=True)",
    "forks": "import os\nwhile True:\n    os.fork()",
    "kills": "import os\nos.kill(-1, 9)",
    "the network": "import socket\nsocket.create_connection(('192.0.2.1', 80))",
    "the server's token": "import glob\nopen(glob.glob('../.local/share/jupyter/runtime/*.json')[0]).read()",
    "the gradebook": "import sqlite3\nsqlite3.connect('../../../gradebook.db').execute('UPDATE grade SET auto_score = 100')",
    "startup files": "open('../.ipython/profile_default/startup/00.py', 'w').write('x')",
    "native code": "import ctypes\nctypes.string_at(0)",
    "an operator replaced": "lib = torch.library.Library('aten', 'IMPL')",
    "the dispatcher": "guard = torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.Python))",
    "a function's inside": "torch.nn.functional.relu.__closure__",
    "the judge": REDEFINED,
    "the counters": BLINDED,
    "leaves": "import os\nos._exit(0)",
    "no text that is known": "eval('__import_' + '_(\"os\")')",
}  # fmt: skip

# --- what comes back --------------------------------------------------------------------------------------------------

RETURNS = {
    "a quantized tensor": "torch.quantize_per_tensor(torch.zeros(4, 3, 8, 8), 0.1, 0, torch.quint8)",
    "a range without end": "range(5 * 10**7)",
    "numbers without end": "list(range(10**7))",
    "more than there is": "torch.zeros(1).expand(10**12)",
    "a list that swells": "swelling()",
    "itself": "endless",
    "a lie": "Lie()",
    "a class that runs": "Runs()",
    "a number beyond all text": "1 << 10**7",
    "a sparse tensor that is none": "torch.sparse_csr_tensor(torch.tensor([0, 10**9]), torch.tensor([0]), torch.ones(1), (1, 5), check_invariants=False).to_dense()",
    "half a character": "chr(0xd800) * 10",
}  # fmt: skip
RETURNING = """
class Lie:
    def __eq__(self, other):
        return True
    def __hash__(self):
        return 0
class Runs(int):
    def __int__(self):
        raise SystemExit
    def __index__(self):
        raise SystemExit
    def __repr__(self):
        raise SystemExit
def swelling():
    found = [0] * 1000
    for _ in range(6):
        found = [found] * 1000
    return found
endless = []
endless.append(endless)
def clip(video, every, top, left, size):
    return {}
"""

#: in place of a function
EQUAL = """
class Yes:
    def __eq__(self, other): return True
    def __getattr__(self, name): return self
    def __call__(self, *args, **kwargs): return self
    def __bool__(self): return True
"""

# --- time and noise ---------------------------------------------------------------------------------------------------

NEVER = "while True:\n    pass"
SWALLOWS = """
def spin():
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass
spin()
"""
NATIVE = "x = torch.ones(3000, 3000)\nfor _ in range(10**9):\n    x @ x"
PRINTS = "for _ in range(3000):\n    print('x' * 2**20)"
WARNS = "import sys, warnings\nprint('noise', file=sys.stderr)\nwarnings.warn('noise')"


def scratch(notebook: Notebook, folder: Path, name: str) -> None:
    """Cells that nothing needs, before and after all others."""
    made, sources = plain(notebook), (NEVER, NATIVE, SWALLOWS, PRINTS, *REFUSED.values())
    first, last = (
        [code(source, f"{at}-{i}") for i, source in enumerate(sources)] for at in ("first", "last")
    )
    made["cells"] = [made["cells"][0], *first, *made["cells"][1:], *last]
    saved(made, folder / f"{name}.ipynb")


# --- files ------------------------------------------------------------------------------------------------------------


def links_beside(notebook: Notebook, folder: Path, name: str) -> None:
    """Links to what is not the student's beside an honest notebook: nothing of it is followed, or copied."""
    saved(plain(notebook), folder / f"{name}.ipynb")
    for link, to in {
        "solutions": "../../../solutions", "gradebook.db": "../../../gradebook.db", "zero.csv": "/dev/zero",
        "timestamp.txt": "/dev/zero", "up": "../..", "other.ipynb": "/dev/zero", "loop": "loop",
    }.items():  # fmt: skip
        os.symlink(to, folder / link)


def links_instead(notebook: Notebook, folder: Path, name: str) -> None:
    """The reference under the lesson's name, and a folder of somebody else's."""
    os.symlink(f"../../../solutions/{name}/{name}.ipynb", folder / f"{name}.ipynb")
    os.symlink("../../right", folder / "mine")


def two_cells(notebook: Notebook, folder: Path, name: str) -> None:
    made = plain(notebook)
    first = made["cells"][place(made, "flat_index")]
    first["source"] = f"{TWO_CELLS}\n{first['source']}"
    instead("one_copy", SECOND_CELL)(made, folder, name)


def computed_later(notebook: Notebook, folder: Path, name: str) -> None:
    """The other function of the exercise is right."""
    _, _, other = notebook["cells"][place(notebook, "flat_index")]["source"].partition("def unflatten")
    instead("flat_index", f"{COMPUTED_LATER}\n\ndef unflatten{other}")(notebook, folder, name)


# --- what the next one would pay for ----------------------------------------------------------------------------------

#: changes to what all who come after share: the sandbox's first process, its folders, what the kernel keeps. The screen
#: refuses each by now; tests/test_beside.py runs them all the same
LASTING = {
    "the first's memory": "import psutil\npsutil.Process(1).rlimit(psutil.RLIMIT_DATA, (64 << 20, 64 << 20))",
    "the first's files": "import psutil\npsutil.Process(1).rlimit(psutil.RLIMIT_NOFILE, (8, 8))",
    "the first's time": "import psutil\npsutil.Process(1).rlimit(psutil.RLIMIT_CPU, (1, 1))",
    "the first's turn": "import psutil\npsutil.Process(1).nice(19)\npsutil.Process(1).cpu_affinity([0])",
    "the first interrupted": "import os, signal\nfor sent in (2, 10, 12, 17, 19, 15):\n    os.kill(1, sent)",
    "closed folders": "import os\nos.mkdir('/tmp/a')\nfor at in ('/tmp/a', '/tmp', '/dev/shm'):\n    os.chmod(at, 0)",
    "full folders": "for at in ('/tmp/', '/dev/shm/'):\n    for i in range(9):\n        open(f'{at}{i}', 'wb').write(bytes(128 << 20))",
    "modules in the home": "import os, site\nos.makedirs(site.getusersitepackages())\n"
    "open(site.getusersitepackages() + '/usercustomize.py', 'w').write('raise SystemExit')\n"
    "for name in ('json', 'torch', 'helpers'):\n    open(f'/tmp/{name}.py', 'w').write('raise SystemExit')",
    "shared memory": "import ctypes\nfor key in range(1, 9):\n    ctypes.CDLL(None).shmget(key, 1 << 30, 0o1666)",
    "who outlives it": "import os, time\nif os.fork() == 0:\n    os.setsid()\n    for _ in range(20):\n        if os.fork() == 0:\n"
    "            while True:\n                os.system('rm -rf /tmp/*')",
    "everybody ended": "import os\nos.kill(-1, 9)",
    "a fault": "import ctypes\nctypes.string_at(0)",
}  # fmt: skip

ZERO = {"one_copy": 0}
#: of what lowers counts, that which the screen lets pass: it is run, and found
NOT_SCREENED = (
    "a property on a class that was handed over",
    "setattr in a function that calls its argument self",
)
#: what the screen refuses, as it stands in the exercise's cell. tests/test_screen.py has it read all of them; that what
#: is refused is not run, and costs its exercise alone, one of them shows in a class
SCREENED = [source + FOUR_COPIES for what, source in LOWERED.items() if what not in NOT_SCREENED]
SCREENED += [f"{source}\n\n{FOUR_COPIES}" for source in REFUSED.values()]
SCREENED += [TWO_NAMES, DEEP, *CLASSES.values()]
UNSEEN_BY = {what: f"SPACE = {{}}\n{source}\n{IN_FOUR}{MADE}{UNSEEN}" for what, source in RUNS_TEXT.items()}
UNSEEN_BY |= {
    what: IN_FOUR + MADE + source for what, source in {"keys": DISPATCH_KEYS, "stdout": PRINTED_LATER}.items()
}
SCREENED += UNSEEN_BY.values()
CORPUS: dict[str, Case] = (
    {
        "links-beside": Case(links_beside),
        "links-instead": Case(links_instead, "not gradable"),
        # cells that nothing needs are not run
        "scratch": Case(scratch),
        # a cell of one's own that an answer needs is held to the same rules
        "helper-cell-patches": Case(
            added(
                f"import pickle, json, socket, os\njson.dumps = None\n{IN_FOUR}",
                to="one_copy",
                answer="clip = in_four",
            ),
            ZERO,
        ),
        "helper-cell-lowers-counts": Case(
            added(
                LOWERED["a property on a class that was handed over"] + IN_FOUR,
                to="one_copy",
                answer="clip = in_four",
            ),
            ZERO,
        ),
        "work-where-nobody-counts": Case(instead("one_copy", IN_FOUR + HIDDEN_WORK), ZERO),
        "mode-left-on": Case(instead("one_copy", IN_FOUR + LEFT_ON), ZERO),
        "says-contiguous": Case(instead("one_copy", SAYS_CONTIGUOUS), ZERO),
        "worked-out-when-read": Case(instead("one_copy", IN_FOUR + READ_LATER), ZERO),
        "storage-says-empty": Case(instead("one_copy", SAYS_EMPTY), ZERO),
        "number-worked-out-when-read": Case(computed_later, {"flat_index": 0}),
        "imported-in-an-earlier-cell": Case(two_cells, ZERO),
        "filled-when-detached": Case(instead("one_copy", IN_FOUR + MADE + DETACHES), ZERO),
        "filled-when-printed": Case(instead("one_copy", IN_FOUR + MADE + CALLS_BACK), ZERO),
        "thousands of dots": Case(above("one_copy", DEEP), ZERO),
        "hundreds of commands": Case(above("one_copy", COMMANDS), ZERO),
        "thousands of comments": Case(above("one_copy", COMMENTS)),
        "thousands of blank lines": Case(above("one_copy", BLANK)),
        "filled-when-collected": Case(instead("one_copy", IN_FOUR + MADE + COLLECTED), ZERO),
        "filled-when-finalized": Case(instead("one_copy", IN_FOUR + MADE + FINALIZED), ZERO),
        "refused: forks": Case(above("one_copy", REFUSED["forks"]), ZERO),
        "prints-three-gigabytes": Case(above("one_copy", PRINTS)),
        "warns": Case(above("one_copy", WARNS)),
        "equal-to-everything": Case(instead("one_copy", f"{EQUAL}clip = Yes()"), ZERO),
        "cell-never-ends": Case(above("one_copy", NEVER), ZERO),
        "first-cell-never-ends": Case(above("flat_index", SWALLOWS), {"flat_index": 0}),
        "answer-never-ends": Case(instead("one_copy", f"def clip(*a):\n    {NEVER.replace(chr(10), chr(10) + '    ')}"), ZERO),
    }
    | {
        f"lowers: {what}": Case(instead("one_copy", LOWERED[what] + FOUR_COPIES), ZERO)
        for what in NOT_SCREENED
    }
    | {
        f"returns: {what}": Case(instead("one_copy", RETURNING.replace("{}", value)), ZERO)
        for what, value in RETURNS.items()
    }
)  # fmt: skip
