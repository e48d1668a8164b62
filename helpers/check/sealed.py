"""A simulated GPU that hides what no real one would show: for tests in which the answer is to measure.

What it holds lies outside the object, behind a built-in that shows nothing of it, and is handed to two kinds of
code only, told apart by their code objects, which no name and no namespace can imitate: the function that called
:func:`sealed` (a test's ``drive``), and the simulator while it does what PyTorch or one of the open names asked for.
As all guards within one process, this ends the short ways and is not complete.
"""

import functools
import gc
import operator
import sys
import weakref
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

#: what a learner's code may ask of it; the rest is for the course's own code and for a test's `drive`
_OPEN = frozenset(
    """device evidence name clock clock_ns synchronize Event Stream stream current_stream default_stream host_work
    CUDAGraph graph graph_pool_handle make_graphed_callables is_current_stream_capturing empty_cache memory_allocated
    memory_reserved set_sync_debug_mode get_sync_debug_mode mem_get_info memory_stats max_memory_allocated max_memory_reserved __class__""".split()
)
_PARTS = ("Stream", "Event", "CUDAGraph")
#: modules in which times and races are worked out
_DECISIVE = """accesses clocks collectives cost dispatch gpu memory modes network peers races sharded sharing streams
    timeline traffic values""".split()
#: what torch.distributed hands out: holds nothing of the GPU's itself
_SENT = ("Sent", "SentFuture")
#: what PyTorch calls: the modes, what stands in for Tensor.record_stream, and the end of a storage
_CALLED = ("__torch_dispatch__", "__torch_function__", "record_stream", "_ended")


def _codes() -> tuple[frozenset[int], frozenset[int], frozenset[int], list[CodeType]]:
    """Ids of the helpers' code objects; of those that may be called from outside; of those that take streams; and
    the objects themselves, so that no other gets such an id."""
    from helpers.simulator.gpu import SimGPU

    gpu = [kind.__name__ for kind in SimGPU.__mro__[:-1]]
    helpers: dict[int, CodeType] = {}
    entries, checked = set(), set()
    for f in gc.get_objects():
        if type(f) is not FunctionType:
            continue
        module = str(f.__globals__.get("__name__"))
        if not module.startswith(("helpers.", "contextlib")):
            continue
        for code in _nested(f.__code__):
            helpers[id(code)] = code
            if not module.startswith("helpers.simulator."):
                continue
            above, _, last = code.co_qualname.rpartition(".")
            part = above in _PARTS and (last[0] != "_" or last in ("__eq__", "__hash__", "__repr__"))
            if part or above in gpu and last in (*_OPEN, "__repr__"):
                checked.add(id(code))
            elif (
                above not in _SENT
                and last not in _CALLED
                and not (above.endswith("<locals>") and last[0] != "<")
            ):
                continue
            entries.add(id(code))
    return frozenset(helpers), frozenset(entries), frozenset(checked), [*helpers.values()]


_known: Any = None  # what _codes() said


def know() -> None:
    """Learn which code is the course's own: to be called where no other code has run yet, and all is imported."""
    global _known
    _known = _known or _codes()


def sealed(gpu: Any) -> Any:
    """``gpu`` itself, with its record of kernels (and all else beyond torch.cuda's names and ``clock``) closed.

    However the learner's code comes by the object (``helpers.simulator.active()``, a bound method's ``__self__``, a
    closure), a closed attribute raises AttributeError there, and none can be set. Its streams, events and graphs
    are closed in the same way. RuntimeError at the next operator if the simulator's own code has been replaced.
    """
    from helpers.simulator.gpu import SimGPU

    know()
    if type(gpu) is not SimGPU:
        raise TypeError("only a simulated GPU that is not sealed yet can be sealed")
    _close(gpu, SimGPU, frozenset(map(id, _nested(sys._getframe(1).f_code))))
    return gpu


def _close(gpu: Any, plain: type, drive: frozenset[int]) -> None:
    from helpers.simulator import graphs, streams

    (helpers, entries, checked, _), intact = _known, _snapshot()
    held: dict[
        int, tuple[Any, dict[str, Any]]
    ] = {}  # id of an object → a weak reference to it, its attributes

    def own(thing: Any) -> dict[str, Any]:
        known = held.get(id(thing))
        if known is None or known[0]() is not thing:
            if len(held) % 1024 == 1023:
                for gone in [k for k, (ref, _) in held.items() if ref() is None]:
                    del held[gone]
            known = held[id(thing)] = weakref.ref(thing), {}
        return known[1]

    def genuine(frame: Any) -> bool:
        """Whether the streams and events that an open method was given are this GPU's own."""
        given = frame.f_locals
        for name in ("self", "stream", "event", "end_event", "cuda_graph"):
            if (one := given.get(name)) is not None and type(one) not in bases:
                return False
        return True

    def ours(frame: Any) -> bool:
        while frame is not None:
            code = id(frame.f_code)
            if code in entries:
                return code not in checked or genuine(frame)
            if code in drive or code in makers:
                return True
            if code not in helpers:
                return False
            frame = frame.f_back
        return False

    def answer(request: tuple[str, Any, str, Any], box: list[Any]) -> int:
        verb, thing, name, value = request
        door = sys._getframe(1)
        base = bases[type(thing)]
        shown = name in _OPEN or base is not plain and name[0] != "_"
        if id(door.f_code) not in doors or not (verb == "get" and shown or ours(door.f_back)):
            raise AttributeError(
                f"a {base.__name__.removeprefix('Sim')} has no {name!r} for you: torch.cuda's names, and clock()"
            )
        if name in ("_backward", "_stack") and not intact():
            raise RuntimeError("the simulator's own code was replaced while it was in use")
        mine = own(thing)
        if verb == "set":
            mine[name] = value
        elif verb == "del":
            mine.pop(name)
        elif base is plain and name in made:
            box.append(made[name])
        elif name in mine:
            box.append(mine[name])
        else:  # the simulator's class and not the sealed one, into which anything can be put
            box.append(
                object.__getattribute__(thing, name)
                if name[:2] == "__"
                else getattr(super(kinds[base], thing), name)
            )
        return 0

    # A built-in that calls `answer`, and shows neither it nor what it holds: a closure would show both.
    ask = functools.cmp_to_key(answer)
    kinds = {
        base: _sealed_kind(base, ask) for base in (plain, streams.Stream, streams.Event, graphs.CUDAGraph)
    }
    bases = {kind: base for base, kind in kinds.items()}
    made = _makers(gpu, plain, *(kinds[base] for base in (streams.Stream, streams.Event, graphs.CUDAGraph)))
    makers = {id(f.__code__) for f in (*made.values(), _close)}
    doors = {
        id(vars(kind)[name].__code__)
        for kind in bases
        for name in ("__getattribute__", "__setattr__", "__delattr__")
    }
    own(gpu).update(vars(gpu))
    vars(gpu).clear()
    gpu.__class__ = kinds[plain]
    inside = own(gpu)
    inside["_default"] = inside["_current"] = kinds[streams.Stream](gpu, inside["_default"]._lane)


def _sealed_kind(base: type, ask: Any) -> Any:
    class Sealed(base):  # type: ignore[misc, valid-type]
        def __getattribute__(self, name: str) -> Any:
            box: list[Any] = []
            operator.lt(ask(("get", self, name, None)), ask(box))
            return box[0]

        def __setattr__(self, name: str, value: Any) -> None:
            operator.lt(ask(("set", self, name, value)), ask([]))

        def __delattr__(self, name: str) -> None:
            operator.lt(ask(("del", self, name, None)), ask([]))

    return Sealed


def _makers(gpu: Any, plain: Any, stream: Any, event: Any, graph: Any) -> dict[str, Any]:
    """What makes sealed streams, events and graphs."""

    def Stream(device: Any = None, priority: int = 0) -> Any:
        return stream(gpu, plain.Stream(gpu, device, priority)._lane)

    def Event(enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> Any:
        return event(gpu, enable_timing)

    def CUDAGraph(keep_graph: bool = False) -> Any:
        return graph(gpu, keep_graph)

    return {"Stream": Stream, "Event": Event, "CUDAGraph": CUDAGraph}


def _nested(code: CodeType) -> list[CodeType]:
    return [code, *(c for k in code.co_consts if isinstance(k, CodeType) for c in _nested(k))]


def _snapshot() -> Callable[[], bool]:
    """Whether the simulator's functions and methods are still those of now."""
    modules = [sys.modules[f"helpers.simulator.{name}"] for name in _DECISIVE]
    kinds = [
        v for m in modules for v in vars(m).values() if isinstance(v, type) and v.__module__ == m.__name__
    ]
    looks: list[tuple[Any, Any]] = []
    functions: list[FunctionType] = []
    for space in [vars(owner) for owner in (*modules, *kinds)]:
        # the simulator itself replaces __torch_dispatch__ once the compiler is loaded
        kept = {k: v for k, v in space.items() if type(v) is FunctionType and k != "__torch_dispatch__"}
        if kept:
            looks.append((space, operator.itemgetter(*kept)))
            functions += kept.values()
    code = operator.attrgetter("__code__")
    then, codes = [look(space) for space, look in looks], list(map(code, functions))

    def intact() -> bool:
        try:
            return [look(space) for space, look in looks] == then and list(map(code, functions)) == codes
        except (KeyError, AttributeError):
            return False

    return intact
