"""What an answer may use, read off its syntax tree before it runs.

    screen("import subprocess")
    # 'Line 1 imports `subprocess`: an answer may import torch, numpy and plain parts of Python (math, …), …'

An answer runs in the process that counts what it does, so it must not reach the counters, the simulator's record
or the grader. A list of what exercises need is short, and whatever is not on it is refused: in the visible test,
and in the same words when graded, where a refused cell is not run. Values and counts are compared in another process;
this list has to keep an answer to its own work, and need not keep it from harm: that is the sandbox's part.
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

__all__ = ["is_private", "opened", "screen", "starred"]

#: what may be imported: a module → its names that may be used, or None for all public ones
_OPEN: dict[str, frozenset[str] | None] = dict.fromkeys(
    """__future__ array bisect cmath collections datetime decimal fractions graphlib hashlib heapq itertools math
    matplotlib numbers numpy operator posixpath pprint queue random re statistics struct textwrap time torch typing
    typing_extensions weakref""".split()
) | {
    "abc": frozenset({"ABC", "abstractmethod"}),
    # the others of these write into modules and classes, read any attribute, or make code of text
    "contextlib": frozenset(
        """AbstractContextManager ContextDecorator ExitStack closing contextmanager nullcontext suppress""".split()
    ),
    "copy": frozenset({"copy", "deepcopy"}),
    "dataclasses": frozenset(
        {"KW_ONLY", "InitVar", "asdict", "astuple", "dataclass", "field", "fields", "is_dataclass", "replace"}
    ),
    "enum": frozenset({"Enum", "Flag", "IntEnum", "IntFlag", "StrEnum", "auto", "unique"}),
    "functools": frozenset(
        """cache cached_property cmp_to_key lru_cache partial partialmethod reduce total_ordering wraps""".split()
    ),
    "glob": frozenset({"escape", "glob", "iglob"}),
    "json": frozenset({"dumps", "loads"}),
    # reading: what sets limits, priorities and processors reaches the process that forks everybody's
    "psutil": frozenset(
        """AccessDenied Error NoSuchProcess Process cpu_count cpu_freq cpu_percent cpu_stats cpu_times cpu_times_percent
        getloadavg swap_memory virtual_memory""".split()
    ),
    "string": frozenset(
        """ascii_letters ascii_lowercase ascii_uppercase digits hexdigits printable punctuation whitespace""".split()
    ),
    "warnings": frozenset({"catch_warnings", "filterwarnings", "simplefilter", "warn"}),
    "gc": frozenset({"collect"}),
    "io": frozenset({"BytesIO", "StringIO"}),
    "os": frozenset(
        """cpu_count environ getenv getpid listdir path process_cpu_count sched_getaffinity sched_setaffinity sep
        urandom""".split()
    ),
    "sys": frozenset({"byteorder", "float_info", "getsizeof", "maxsize", "stderr", "stdout", "version_info"}),
    "timeit": frozenset({"default_timer"}),
    "threading": frozenset({"active_count", "current_thread", "enumerate", "get_native_id", "main_thread"}),
    "types": frozenset({"MappingProxyType", "SimpleNamespace"}),
    "triton": frozenset({"cdiv", "jit", "language", "next_power_of_2"}),
    "helpers": frozenset(
        """Counts bench compare compiling count lesson memory plots recordings samples simulate text timing trace
        widgets""".split()
    ),
}
#: of the course's own, no part of an answer
_INSIDES = [[name] for name in "check classroom counters lessons pytorch".split()]
#: of large packages, the modules that are open; a star: and those below
_PARTS = {
    "torch": """accelerator amp.* autograd.* backends.* compiler cpu.* cuda.* distributed distributed.algorithms.*
        distributed.device_mesh distributed.distributed_c10d distributed.fsdp distributed.tensor distributed.tensor.parallel
        fft func functional futures fx library linalg mps.* multiprocessing.reductions nested nn.* ops.* optim.* profiler random
        return_types sparse special testing types utils utils.checkpoint utils.data utils.dlpack version""".split(),
    "numpy": "fft lib lib.stride_tricks linalg ma polynomial.* random typing".split(),
    "matplotlib": ["pyplot"],
    "triton": ["language", "language.math"],
}
#: names that lead to a process, its threads, frames, objects or other modules, whatever they are taken from
_LEADS_OUT = frozenset(
    """os sys ctypes ctypeslib gc inspect threading multiprocessing subprocess importlib builtins pickle marshal socket
    mmap tempfile tracemalloc Popen f_back f_globals f_locals f_builtins f_code tb_frame gi_frame cr_frame ag_frame
    cell_contents get_type_hints singledispatch redispatch py_impl py_kernels load_library cpp_extension
    bltns exec get_annotations evaluate_forward_ref ForwardRef on_generate_code set_codegen CodeGen
    parallel_apply attrgetter methodcaller DataLoader TCPStore FileStore HashStore PrefixStore get_ipython
    create_node get_group_store update_kwarg call_module interpreter_semantic profiler_legacy from_file tofile
    datapipes IterDataPipe MapDataPipe to_mkldnn""".split()
)
#: what psutil.Process does to a process, also another than one's own
_ACTS = frozenset("ionice kill nice rlimit send_signal suspend terminate".split())
#: names of a notebook's first cells that keep their meaning
_KEPT = frozenset({"DataLoader", "gc", "np", "os", "sys", "tempfile", "torch"})
#: public, and it hides work, replaces operators, runs text, or reads and writes files
_HIDES = frozenset(
    """torch.compile torch.fx torch.jit torch.library torch.package torch.hub torch.overrides torch.classes torch.load torch.save
    torch.multiprocessing torch.utils.benchmark
    torch.fx.experimental torch.nn.DataParallel torch.nn.parallel.DataParallel
    torch.distributed.rpc torch.distributed.Store torch.distributed.pipelining
    numpy.lib.stride_tricks.as_strided numpy.genfromtxt numpy.fromregex numpy.savez_compressed
    numpy.load numpy.save numpy.savez numpy.savetxt numpy.loadtxt numpy.fromfile numpy.memmap numpy.lib.format
    numpy.f2py numpy.testing
    triton triton.language.str_to_ty""".split()
)
#: … but for this part of one, and what exercises of a lesson are about
_SHOWN = "torch.multiprocessing.reductions"
_IN_LESSON = {
    "11": frozenset({"torch.compile", "torch.fx"}),
    "17": frozenset({"torch.compile", "torch.fx"}),
    "21": frozenset({"torch.library", "triton"}),
}
#: of what torch takes from its C++ as it is, that which leads to no dispatch keys, no TorchScript and no files
_OF_C = re.compile(
    "Size|device|dtype|layout|memory_format|qscheme|finfo|iinfo|Generator|default_generator|Stream|Event|Tag|Future"
    "|OutOfMemoryError|AcceleratorError|(get|set|is|has|autocast|clear)_.*"
)
#: what a graph's node is made of: texts that become code when it is compiled
_OF_NODES = frozenset({"call_method", "get_attr", "placeholder"})
#: … and what is closed in one lesson
_NOT_IN_LESSON = {
    # its exercises count bytes saved for backward, and these keep tensors out of that count
    "17": frozenset(
        f"torch.autograd.{name}"
        for name in ("Function", "graph.saved_tensors_hooks", "graph.save_on_cpu", "function.Function")
    ),
    # its exercise is about operators of one's own; these give PyTorch's own operators another meaning
    "21": frozenset(
        f"torch.library.{name}"
        for name in """Library define fallthrough_kernel get_kernel impl impl_abstract infer_schema register_autocast
        register_kernel register_torch_dispatch register_vmap custom_ops""".split()
    ),
}
#: private names that exercises are about
_KNOWN = re.compile(
    "_(parameters|buffers|modules|forward_hooks|forward_pre_hooks|backward_hooks|base|cdata|version|is_view|saved_\\w+"
    "|replace|asdict|fields)"
)
_OPERATORS = re.compile(
    r"torch\._(foreach_\w+|fused_\w+|int_mm|scaled_mm|scaled_grouped_mm)|torch\.ops\.aten\._\w+"
)
#: … of other libraries, which the counters do not know
_OTHER_OPERATORS = re.compile(r"torch\.ops\.(?!aten\b|_)\w+$")
#: special methods that may be asked for by name
_SPECIAL = frozenset(
    f"__{name}__"
    for name in """init call getitem getitems setitem delitem len iter next enter exit name qualname doc class contains eq
    ne lt le gt ge hash repr str bool int float index add radd sub rsub mul rmul truediv rtruediv matmul neg abs pow mod
    floordiv and or xor version module setstate post_init""".split()
)
#: … by which a class's own code would make a number in the middle of an operator, where no counter looks
_NUMBERS = frozenset({"__complex__", "__float__", "__index__", "__int__"})
#: … that PyTorch calls there too, where a list or a truth value is wanted: in a `def` the run is held (`private.guarded`)
CALLED_BACK = frozenset({"__bool__", "__getitem__", "__iter__", "__len__", "__next__"})
#: … and defined in a class
_DEFINED = (
    _SPECIAL - {"__class__", "__module__", "__name__", "__qualname__"}
    | frozenset(
        f"__{name}__"
        for name in """bytes ceil class_getitem copy deepcopy del delattr dir divmod floor format getattr getstate
    iadd iand ifloordiv imul init_subclass invert ior isub itruediv length_hint missing new pos radd rand reduce reversed
    rfloordiv rmod round rpow setattr slots torch_function trunc""".split()
    )
    - _NUMBERS
)
_OF_SUPER = _SPECIAL | frozenset(
    f"__{name}__"
    for name in "setattr getattr delattr getstate init_subclass new torch_function torch_dispatch".split()
)
#: private names of the course's and torch's own objects, which stay closed also where an answer has one of that name
_ROADS = frozenset({"_C", "_gpu", "_lane", "_machine", "_mark"})
#: … and as attributes: of what a sealed GPU hands out, of torch's operators and graphs, of a text that typing took for a type
_THEIRS = _ROADS | frozenset(
    """_ask _capture _captured _codegen _evaluate _graphs _handle _let_go _nodes _op_dk _pool _refused _text _time_ns _timing _told
    _touched _values""".split()
)
#: what counting and reading results go through
_READ_BY_COUNTERS = frozenset({"as_dict", "data_ptr", "tolist", "untyped_storage"})
_BUILTINS = {
    "exec": "write the statements themselves",
    "compile": "write the statements themselves",
    "globals": "pass what a function needs as its arguments",
    "locals": "pass what a function needs as its arguments",
    "vars": "ask for attributes by their names",
    "open": "work on what the exercise hands you",
    "breakpoint": "take it out before the test",
    "input": "nobody is there to answer when it is graded, so write the value",
    "delattr": "write `del` and the name with a dot",
    "memoryview": "use a tensor or an array",
}  # fmt: skip
#: open where the text that they are given is known before the run
_BY_TEXT = frozenset({"__import__", "eval", "getattr", "hasattr", "setattr"})
#: classes that a pattern takes apart by nobody's list of names
_BY_ITSELF = frozenset("bool bytearray bytes dict float frozenset int list set str tuple".split())
_ONLY_READS = frozenset("dict enumerate len list print set sorted tuple zip".split())
#: what a notebook's first cell calls modules
_USUAL = {name: name for name in "torch math os sys gc itertools operator warnings weakref".split()}
_USUAL |= {"np": "numpy", "nn": "torch.nn", "F": "torch.nn.functional", "dist": "torch.distributed"}
_USUAL |= {"triton": "triton", "tl": "triton.language"}
_TOO_DEEP = "Line 1 begins a cell that Python cannot read: write it with shorter expressions."
#: what the course hands out in place of an import of its own, and what that is
_HANDED_OUT = {"helpers.kernels.on_cpu.triton": "triton", "helpers.kernels.on_cpu.tl": "triton.language"}


def screen(
    source: str, lesson: str | None = None, earlier: Iterable[str] = (), own: Iterable[str] = ()
) -> str | None:
    """``None``, or one sentence: which construct, on which line of ``source``, an answer may not use, and what to do.

    lesson: the lesson's folder, e.g. ``"11_torch_compile"``, since a few names belong to the exercises of one lesson;
    ``None``: unknown, and these names are open. earlier: the cells of the same hand that ran before: what they import is
    known here by the names that they gave it. own: those of them that are no part of the course; on the functions and
    classes that they define, attributes may be set.
    """
    try:
        tree = ast.parse(source)
    except SyntaxError as odd:
        line = odd.lineno or 1
        text = (source.splitlines() or [""])[line - 1 : line]
        if text and text[0].lstrip()[:1] in ("%", "!"):
            return f"Line {line} is a command to IPython: a graded cell holds Python only, so move it to a cell of its own."
        return f"Line {line} is not Python ({odd.msg}): correct it and run the cell again."
    except (ValueError, RecursionError, MemoryError):
        return _TOO_DEEP
    closed = _HIDES - opened(lesson)
    closed |= _NOT_IN_LESSON.get(lesson[:2], frozenset()) if lesson else frozenset()
    named = [node for text in earlier for node in _statements(text, ast.Import | ast.ImportFrom | ast.Assign)]
    made = [node for text in own for node in _statements(text, ast.AST)]
    try:
        refusals = sorted(_Reader(tree, closed, named, made).refused(), key=lambda at: at[0])
    except RecursionError:  # a.b.b.b…, a thousand times
        return _TOO_DEEP
    return f"Line {refusals[0][0]} {refusals[0][1]}." if refusals else None


def is_private(name: str) -> bool:
    """Whether a name is somebody's own: `_x`, and `__dict__`, by which all of them are read and written."""
    special = name[:2] == "__" and name[-2:] == "__"
    return name == "__dict__" or name[:1] == "_" and not special and not _KNOWN.fullmatch(name)


def opened(lesson: str | None) -> frozenset[str]:
    """The names that exercises of a lesson are about, and that are closed in others; those of all lessons for ``None``."""
    return _IN_LESSON.get(lesson[:2], frozenset()) if lesson else frozenset().union(*_IN_LESSON.values())


def starred(module: str) -> frozenset[str]:
    """The names that ``from module import *`` brings; none of a module that an answer may not import so."""
    if module not in sys.modules:
        if screen(f"from {module} import *"):
            return frozenset()
        try:
            import_module(module)
        except ImportError:
            return frozenset()
    of = sys.modules[module]
    return frozenset(getattr(of, "__all__", None) or (name for name in vars(of) if name[0] != "_"))


class _Reader:
    """One cell's tree, and what its names stand for."""

    def __init__(
        self,
        tree: ast.Module,
        closed: frozenset[str],
        earlier: Sequence[ast.AST] = (),
        made: Sequence[ast.AST] = (),
    ) -> None:
        self.made = {name for node in made for name in _binds(node)}
        self.made_otherwise = {
            name for node in made if not isinstance(node, ast.ClassDef) for name in _binds(node)
        }
        # what runs later, when a list of this cell may be there: a function of another cell could change it
        later = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.GeneratorExp
        self.read_elsewhere = {
            name.id
            for node in made
            if isinstance(node, later)
            for name in ast.walk(node)
            if isinstance(name, ast.Name)
        }
        self.elsewhere = {name for node in made if isinstance(node, ast.Global) for name in node.names}
        self.closed, self.nodes = closed, list[ast.AST]([tree])
        self.above: dict[ast.AST, ast.AST] = {}
        self.binding: dict[str, list[ast.AST]] = {}  # a name → where it is given a meaning
        for node in self.nodes:  # grows meanwhile
            for child in ast.iter_child_nodes(node):
                self.above[child] = node
                self.nodes.append(child)
            for name in _binds(node):
                self.binding.setdefault(name, []).append(node)
        self.bound = self.binding.keys()
        self.paths = {
            name: path
            for name, path in _USUAL.items()
            if name not in self.bound and path.partition(".")[0] not in closed
        }
        self.twice: set[str] = set()  # names that stand for two modules, whichever it is when they are used
        self.starred: dict[str, str] = {}  # of `from torch import *`, what is closed in torch
        for node in (*earlier, *self.nodes):
            if isinstance(node, ast.ImportFrom) and node.names[0].name == "*" and node.module in sys.modules:
                paths = {name: f"{node.module}.{name}" for name in starred(node.module)}
                self.starred |= {name: path for name, path in paths.items() if self._hidden(path)}
            for name, path in _imported(node).items():
                modules = {".".join(_resolved(p)) for p in (path, self.paths.get(name, path))}
                self.twice |= {name} if len(modules) > 1 and all(m[-1] == "." for m in modules) else set()
                self.paths[name] = path
        for node in (*earlier, *self.nodes):  # T = torch.Tensor, K = type(x)
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                path = "type(…)" if _calls(node.value, "type") else self._path(node.value)
                name = node.targets[0].id
                if path and (node in self.above or path in sys.modules and name not in self.bound):
                    self.paths.setdefault(name, path)
        self.own = {
            name for node in self.nodes if isinstance(node, ast.ClassDef) for name in _private_of(node)
        }

    def refused(self) -> Iterator[tuple[int, str]]:
        """Each construct that is not open: its line, and the rest of the sentence."""
        for node in self.nodes:
            what: str | None = None
            if kept := _KEPT.intersection(_binds(node)):
                what = f"gives `{min(kept)}` another meaning: call yours otherwise"
            elif numbers := _NUMBERS.intersection(_binds(node)):
                what = f"defines `{min(numbers)}`, which PyTorch may call in the middle of an operator: give it another name, and call it yourself"
            elif special := [n for n in _binds(node) if n[:2] == "__" == n[-2:] and n not in _DEFINED]:
                what = f"defines `{special[0]}`, which changes how others see a class: leave it as it is"
            elif not isinstance(node, ast.FunctionDef) and (called := CALLED_BACK.intersection(_binds(node))):
                what = f"gives `{min(called)}` otherwise than by `def`: write `def {min(called)}(self, …)`"
            elif _binds(node) and (copied := self._copied(node)):
                what = copied
            elif isinstance(node, ast.Import | ast.ImportFrom):
                twice = self.twice.intersection(_imported(node))
                what = (
                    f"calls two modules `{min(twice)}`: give each its own name"
                    if twice
                    else self._imports(node)
                )
            elif isinstance(node, ast.Attribute):
                what = self._attribute(node)
            elif isinstance(node, ast.Name):
                what = self._name(node)
            elif isinstance(node, ast.Call):
                what = self._call(node)
            elif isinstance(node, ast.MatchClass):
                private = [
                    name
                    for name in node.kwd_attrs
                    if name[0] == "_" or name in _LEADS_OUT | _ACTS | {"cpu_affinity"}
                ]
                what = _private(private[0]) if private else self._taken_apart(node)
            elif isinstance(node, ast.ClassDef):
                what = self._metaclass(node)
            elif isinstance(node, ast.Constant | ast.keyword | ast.arg):
                text = node.value if isinstance(node, ast.Constant) else node.arg
                if text in _ROADS:
                    what = _private(str(text))
                elif isinstance(text, str) and re.search(r"\{[^{}]*\._", text):
                    what = "has a text that reads a private name when it is formatted: format values, and public names"
            if what:
                yield getattr(node, "lineno", 1), what

    def _imports(self, node: ast.Import | ast.ImportFrom) -> str | None:
        module = "" if isinstance(node, ast.Import) else "." * node.level + (node.module or "") + "."
        for path in (module + alias.name for alias in node.names):
            top, *names = path.split(".")
            if top not in _OPEN:
                return (
                    f"imports `{path}`: an answer may import torch, numpy and plain parts of Python "
                    "(math, itertools, functools, collections, …), and needs no more"
                )
            if top == "helpers" and (len(names) not in (1, 2) or names[0] not in (_OPEN[top] or ())):
                return f"imports `{path}`: the course's insides are not part of an answer, so compute it yourself"
            if what := self._beyond(path) or self._hidden(path):
                return what
            for name in names:
                if name[0] == "_" and not _OPERATORS.fullmatch(path):
                    return _private(name)
                if name in _LEADS_OUT and not path.startswith(_SHOWN):
                    return _leads(name)
        return None

    def _copied(self, node: ast.AST) -> str | None:
        """What copying would set on things of others: Python's `copy` sets what a class says, on whatever the class makes."""
        name, known = _binds(node)[0], self.bound | self.made
        if name == "__reduce__":
            returns = [inner.value for inner in ast.walk(node) if isinstance(inner, ast.Return)]
            if not isinstance(node, ast.FunctionDef) or not all(
                isinstance(value, ast.Tuple) and len(value.elts) == 2 for value in returns
            ):
                return "has a `__reduce__` that gives more than a callable and its arguments: give these two, as a tuple"
        if {"__new__", "__getstate__"} <= known and name in ("__new__", "__getstate__"):
            return "defines both `__new__` and `__getstate__`, by which a copy sets others' attributes: leave one out"
        return None

    def _taken_apart(self, node: ast.MatchClass) -> str | None:
        """`case K(x)` reads attributes by names that K holds, and these can be worked out: only of classes that stand here."""
        name = getattr(node.cls, "id", "")
        places = self.binding.get(name, [])
        stands = all(isinstance(place, ast.ClassDef) for place in places) and name not in self.made_otherwise
        if not node.patterns or name in _BY_ITSELF - self.bound - self.made:
            return None
        if stands and (places or name in self.made):
            return None
        return (
            f"takes a `{ast.unparse(node.cls)}` apart by position: write the names, as in `case Point(x=x)`"
        )

    @staticmethod
    def _metaclass(node: ast.ClassDef) -> str | None:
        """What derives from a class's class makes classes, with names that can be worked out."""
        for base in node.bases:
            if (
                getattr(base, "id", "") == "type"
                or _calls(base, "type")
                or getattr(base, "attr", "") == "__class__"
            ):
                return "derives from `type`: write the classes that it would make"
        return None

    def _formatted(self, node: ast.Attribute) -> str | None:
        """`text.format(x)` reads the attributes that the text names: it has to stand here."""
        text = node.value
        if isinstance(text, ast.BinOp) and isinstance(text.op, ast.Mult):
            text = text.left
        if isinstance(text, ast.Name) and (places := self.binding.get(text.id)):
            assigned = [self.above[place] for place in places]
            if all(isinstance(a, ast.Assign) and isinstance(a.value, ast.Constant) for a in assigned):
                return None
        if isinstance(text, ast.Constant) or self._is_own(text):
            return None
        return f"uses `{node.attr}` on a text that only its run will tell: write an f-string"

    def _attribute(self, node: ast.Attribute) -> str | None:
        path, name = self._path(node), node.attr
        if not isinstance(node.ctx, ast.Load) and (what := self._assigned(node)):
            return what
        if path and (what := self._beyond(path) or self._hidden(path)):
            return what
        if name in _LEADS_OUT:
            return _leads(name)
        if name in ("format", "format_map") and (what := self._formatted(node)):
            return what
        if name in _ACTS or name == "cpu_affinity" and not self._only_asked(node):
            return f"uses `{name}`, which acts on a process: read only, and bind your own by `os.sched_setaffinity`"
        if name[0] != "_" and path in sys.modules and self._handed_on(node):
            return f"hands the module `{path}` on: use it with a dot, as `{path}.name`"
        if name[0] != "_" or _KNOWN.fullmatch(name) or path and _OPERATORS.fullmatch(path):
            return None
        if _calls(node.value, "super"):
            return None if name in _OF_SUPER or name[:2] != "__" else _private(name)
        if name in _SPECIAL or name == "__dict__" and self._is_own(node.value):
            return None
        if name[-2:] != "__" and name not in _THEIRS and not path:
            if self._is_own(node.value) or name in self.own:
                return None
        return _private(name)

    def _name(self, node: ast.Name) -> str | None:
        name, above = node.id, self.above.get(node)
        called = isinstance(above, ast.Call) and above.func is node
        if name in _ROADS or name == "__match_args__":
            return _private(name)
        if name in _BUILTINS and (name != "input" or name not in self.bound):
            return f"uses `{name}`: {_BUILTINS[name]}"
        if name in _LEADS_OUT and name not in self.paths and name not in self.bound:
            return _leads(name)
        if name == "type" and not called and isinstance(above, ast.Assign | ast.Tuple | ast.List | ast.Dict):
            return "hands `type` on: call it with one object"
        if name in _BY_TEXT and not called and not (name == "eval" and isinstance(above, ast.Call)):
            return f"hands `{name}` on: call it, with a text that is written out"
        if not isinstance(node.ctx, ast.Load):
            return None
        if name in self.starred:
            return self._hidden(self.starred[name])
        if name[:2] == "__" and name[-2:] == "__" and name not in ("__name__", "__class__", "__import__"):
            return _private(name)
        if self.paths.get(name) in sys.modules and self._handed_on(node):
            return f"hands the module `{name}` on: use it with a dot, as `{name}.name`"
        return None

    def _call(self, node: ast.Call) -> str | None:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if isinstance(node.func, ast.Attribute) and (what := self._of_node(node, node.func.attr)):
            return what
        # eval(text), count(eval, text)
        counted = name == "count" and name not in self.bound | self.made
        for arg, text in zip(
            [node.func, *node.args[:counted]], [*node.args[: counted + 1], None], strict=False
        ):
            if getattr(arg, "id", "") == "eval" and (what := self._evaluated(text)):
                return what
        if any(getattr(arg, "id", "") == "eval" for arg in node.args[counted:]):
            return "hands `eval` on: call it, or the course's `count`, with a text that is written out"
        of_class = _calls(node.func, "type") or getattr(node.func, "attr", "") == "__class__"
        of_class = of_class or self._path(node.func) == "type(…)"
        if name == "type" and (len(node.args) != 1 or node.keywords) or of_class and len(node.args) == 3:
            return "makes a class by `type`: write `class` and its name"
        if self._path(node.func) == "functools.wraps":
            if len(node.args) != 1 or node.keywords:
                return "tells `functools.wraps` what to copy: leave it to copy a name and a docstring"
            if not isinstance(self.above.get(node), ast.FunctionDef | ast.AsyncFunctionDef):
                return "uses `functools.wraps` otherwise than above a function: write it as its decorator"
        if name == "__import__":
            modules = self._texts(next(iter(node.args), None))
            if modules is None:
                return "imports what only its run will tell: write `import` and the module's name"
            return next((what for m in modules if (what := self._imports(ast.Import([ast.alias(m)])))), None)
        return self._by_text(node, name) if name in ("getattr", "hasattr", "setattr") else None

    def _by_text(self, node: ast.Call, name: str) -> str | None:
        """getattr, hasattr and setattr: as the attribute with a dot, if the text is known."""
        if len(node.args) < 2:
            return f"calls `{name}` without a name: write the name with a dot"
        texts, of = self._texts(node.args[1]), node.args[1]
        if texts is None:
            # a node's: what may stand there, `_of_node` sees to
            of_node = getattr(of, "attr", "") == "target" and "torch.fx" not in self.closed
            if name == "getattr" and of_node:
                return None
            return f"calls `{name}` with a name that only its run will tell: write it out, or keep a dict"
        for text in texts:
            dotted = ast.Attribute(node.args[0], text, ast.Store() if name == "setattr" else ast.Load())
            self.above[dotted] = node
            if not text.isidentifier() or (what := self._attribute(ast.copy_location(dotted, node))):
                return what if text.isidentifier() else _private(text)
        return None

    def _evaluated(self, text: ast.expr | None) -> str | None:
        texts = self._texts(text)
        if texts is None:
            return "uses `eval` on a text that only its run will tell: write the expression itself"
        for source in texts:
            try:
                inside = _Reader(ast.parse(source), self.closed)
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                continue  # it raises
            inside.paths |= self.paths
            if refusals := list(inside.refused()):
                return "uses `eval` on a text that " + refusals[0][1]
        return None

    def _of_node(self, call: ast.Call, name: str) -> str | None:
        """torch.fx writes code of what its nodes hold: there may be no texts but those that stand here, and names they are."""
        if "torch.fx" in self.closed:
            return None
        first = call.args[0] if call.args else None
        if name in _OF_NODES:
            text = first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else "_"
            parts = text.split(".")
            if not all(part.isidentifier() and part[0] != "_" for part in parts) or _LEADS_OUT & {*parts}:
                return (
                    f"calls `{name}` with another text than a public name that is written out: write it out"
                )
        named = [*call.args[2:3], *(k.value for k in call.keywords if k.arg == "kwargs")]
        if name == "call_function" and not all(_known_names(node) for node in named):
            return "calls `call_function` with names of arguments that only its run will tell: write them out"
        return None

    def _texts(self, node: ast.expr | None) -> list[str] | None:
        """The texts that an expression can stand for, if they can be told: a literal, or what a loop goes over."""
        if isinstance(node, ast.Constant):
            return [node.value] if isinstance(node.value, str) else None
        if not isinstance(node, ast.Name):
            return None
        texts: list[str] = []
        for place in self.binding.get(node.id, ()):
            loop = self.above.get(place)
            if not isinstance(loop, ast.For | ast.comprehension) or loop.target is not place:
                return None
            # within the loop nobody else's name is meant
            around = loop if isinstance(loop, ast.For) else self.above[loop]
            if not self._within(node, around) or node.id in self.elsewhere:
                return None
            over = self._written_out(loop.iter)
            values = [getattr(e, "value", None) for e in getattr(over, "elts", getattr(over, "keys", [None]))]
            if not all(isinstance(value, str) for value in values):
                return None
            texts += map(str, values)
        return texts or None

    def _written_out(self, over: ast.expr) -> ast.expr:
        """What a loop goes over: as it stands in its header, or the list behind a name that nobody else could change."""
        if not isinstance(over, ast.Name) or over.id in self.elsewhere | self.read_elsewhere:
            return over
        places = [node for node in self.nodes if isinstance(node, ast.Name) and node.id == over.id]
        made, *uses = sorted(places, key=lambda place: isinstance(place.ctx, ast.Load))
        value = self.above[made]
        if not isinstance(value, ast.Assign) or len(self.binding.get(over.id, ())) > 1:
            return over
        read_only = all(
            isinstance(above := self.above[use], ast.For | ast.comprehension) and above.iter is use
            or isinstance(above, ast.Call) and getattr(above.func, "id", "") in _ONLY_READS - self.bound - self.made
            for use in uses
        )  # fmt: skip
        return value.value if read_only and self._within(over, self.above[value]) else over

    def _within(self, node: ast.AST, around: ast.AST) -> bool:
        """Whether a node is below another, and in no function between: that may be called when the name is another's."""
        while node is not around:
            if (
                isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
                or node not in self.above
            ):
                return False
            node = self.above[node]
        return True

    def _assigned(self, node: ast.Attribute) -> str | None:
        root: ast.expr = node
        while isinstance(root, ast.Attribute | ast.Subscript):
            root = root.value
            if isinstance(root, ast.Attribute) and root.attr == "__class__":
                break
        text = ast.unparse(node)
        special = node.attr[:2] == "__" and node.attr[-2:] == "__" or node.attr in _READ_BY_COUNTERS
        foreign = isinstance(root, ast.Attribute) or _calls(root, "type")
        if path := self._path(node.value):
            foreign = not path.startswith("torch.backends.")  # settings, which belong to nobody
        elif isinstance(root, ast.Name):
            foreign = root.id in _USUAL or root.id not in self.bound | self.made | self.paths.keys()
        if special or foreign or "torch.fx" not in self.closed and node.attr in ("target", "kwargs"):
            return f"changes `{text}`, which others use too: keep the value in a variable, or on an object of your own"
        return None

    def _hidden(self, path: str) -> str | None:
        if path.startswith(_SHOWN):
            return None
        if path in self.closed or _OTHER_OPERATORS.match(path):
            return f"uses `{path}`, which hides work from the counters or leaves something behind: use PyTorch's operators"
        return self._hidden(path.rpartition(".")[0]) if "." in path else None

    def _beyond(self, path: str) -> str | None:
        module, inside = _resolved(path)
        real = f"{module}.{inside}" if inside else module
        top, *below = real.split(".")
        allowed = _OPEN.get(top, frozenset() if top not in _OPEN else None)
        if allowed is not None and below and below[0] not in allowed:
            return f"uses `{path}`: of `{top}` an answer may use {_listed(allowed) or 'nothing'}"
        private = "._" in f"{module}." and path.startswith(module)  # told as such
        thing = vars(sys.modules.get(module, ast)).get(inside.partition(".")[0])
        if isinstance(thing, type) and issubclass(thing, type):
            return f"uses `{path}`, by which classes are made with names that can be worked out: write `class` and its name"
        if module == "torch" and _is_of_c(inside.partition(".")[0]):
            return f"uses `{path}`, which belongs to PyTorch's inside: use its operators"
        if top not in _OPEN or not private and not _is_open_part(module) or _is_borrowed(module, inside):
            return f"uses `{path}`, a part of `{top}` that no exercise needs: use what the lesson shows"
        return self._hidden(real) if real != path else None

    def _handed_on(self, node: ast.expr) -> bool:
        """Whether a module goes elsewhere than before a dot, behind ``F =``, or into getattr."""
        above = self.above.get(node)
        if isinstance(above, ast.Call) and above.args[:1] == [node]:
            return not (
                isinstance(above.func, ast.Name) and above.func.id in ("getattr", "hasattr", "setattr")
            )
        if isinstance(above, ast.Assign):  # F = torch.nn.functional: to one name, which has no other meaning
            to = above.targets[0]
            plain = len(above.targets) == 1 and isinstance(to, ast.Name) and len(self.binding[to.id]) == 1
            return not plain or isinstance(self.above[above], ast.ClassDef)
        return not isinstance(above, ast.Attribute)

    def _only_asked(self, node: ast.expr) -> bool:
        """Whether it is called without arguments, which reads and sets nothing."""
        above = self.above.get(node)
        return isinstance(above, ast.Call) and above.func is node and not above.args and not above.keywords

    def _is_own(self, node: ast.expr) -> bool:
        """Whether this is what a method calls the object of its own class."""
        name = node.id if isinstance(node, ast.Name) else ""
        places = self.binding.get(name, [])
        return name in {"self", "cls", "ctx"} - self.paths.keys() and all(
            isinstance(place, ast.arg) for place in places
        )

    def _path(self, node: ast.expr) -> str:
        """``torch.nn.functional`` for ``F``, also behind other names; "" for what does not begin with a module."""
        if isinstance(node, ast.Attribute):
            before = self._path(node.value)
            return f"{before}.{node.attr}" if before else ""
        return self.paths.get(node.id, "") if isinstance(node, ast.Name) else ""


def _resolved(path: str) -> tuple[str, str]:
    """The module that a path ends in or passes last, by its own name, and the rest: ``builtins``, ``exec`` for
    ``enum.bltns.exec``. Of the course's own, what is asked for is imported: here as there; nothing else is."""
    at, *names = path.split(".")
    if at == "helpers" and names and names[0] in (_OPEN[at] or ()) and _is_there(f"helpers.{names[0]}"):
        import_module(f"helpers.{names[0]}")
    while names:
        inner = vars(sys.modules.get(at, ast)).get(names[0], sys.modules.get(f"{at}.{names[0]}"))
        if inner is None and at.partition(".")[0] in _PARTS and _is_there(f"{at}.{names[0]}"):
            at = f"{at}.{names[0]}"
        elif isinstance(inner, ModuleType):
            at = inner.__name__
        else:
            break
        del names[0]
    return at, ".".join(names)


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, AttributeError, ValueError):
        return False


def _is_open_part(module: str) -> bool:
    top, _, part = module.partition(".")
    if top not in _PARTS or not part:
        return True
    return any(
        part == name.removesuffix(".*") or part.startswith(name.removesuffix("*")) and name[-1] == "*"
        for name in _PARTS[top]
    )


def _is_of_c(name: str) -> bool:
    """Whether torch hands this on from its C++ as it is, and no exercise needs it: dispatch keys, TorchScript."""
    inside = vars(sys.modules.get("torch._C", ast))
    return name in inside and name[0] != "_" and not _OF_C.fullmatch(name)


def _is_borrowed(module: str, inside: str) -> bool:
    """Whether a name leads to what its module, one of PyTorch's or of the course's, uses and does not offer."""
    thing = vars(sys.modules.get(module, ast)).get(inside.partition(".")[0])
    made_in = getattr(thing, "__module__", None) or ""
    if module.startswith("helpers."):
        return not made_in.startswith("helpers" * bool(made_in)) or made_in.split(".")[1:2] in _INSIDES
    return (
        module.startswith("torch.")
        and "._" in made_in
        and inside not in getattr(sys.modules[module], "__all__", [inside])
    )


def _binds(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        return [node.id]
    if isinstance(node, ast.arg):
        return [node.arg]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
        return [node.name]
    return [node.rest] if isinstance(node, ast.MatchMapping) and node.rest else []


def _statements(source: str, kind: Any) -> list[ast.AST]:
    try:
        return [node for node in ast.walk(ast.parse(source)) if isinstance(node, kind)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []  # it did not run either


def _imported(node: ast.AST) -> dict[str, str]:
    """The names that an import binds, and what they stand for."""
    if isinstance(node, ast.Import):
        return {
            a.asname or a.name.partition(".")[0]: a.name if a.asname else a.name.partition(".")[0]
            for a in node.names
        }
    if isinstance(node, ast.ImportFrom):
        paths = {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
        return {name: _HANDED_OUT.get(path, path) for name, path in paths.items()}
    return {}


def _private_of(made: ast.ClassDef) -> Iterator[str]:
    """Names that a class makes: its methods, its variables, what methods put on ``self``, and its ``__slots__``."""
    for node in ast.walk(made):
        yield from _binds(node)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _known_names(node: ast.expr) -> bool:
    """Whether this is a dict with keys that are written out, or one of two such."""
    if isinstance(node, ast.IfExp):
        return _known_names(node.body) and _known_names(node.orelse)
    return isinstance(node, ast.Dict) and all(
        isinstance(key, ast.Constant) and str(key.value).isidentifier() for key in node.keys
    )


def _calls(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def _private(name: str) -> str:
    return f"uses `{name}`, a private name of somebody else's: use public names, and private ones on your own `self`"


def _leads(name: str) -> str:
    return f"uses `{name}`, which leads out of the exercise: work on what your function is given"


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))
