"""What an answer did, counted once more by PyTorch's own observers in C++: no name of Python leads to them.

    with Seen() as seen:
        x * 2
    seen.operators(whole=frozenset())    # {"aten.mul": 1}

The counters (:mod:`helpers.counters`) live where the answer lives, and a list of names guards them. An answer that passed
is run again in a fresh copy of its process, its cases in the other order (:func:`helpers.check.probe.answer`), and the
profiler's callbacks note every operator that the dispatcher is asked for, until its results have been read. Where they saw
what the counters did not, a person is asked.
"""

import random
from collections import Counter
from collections.abc import Mapping, Set
from functools import cache
from typing import Any

import torch

from helpers.counters.operators import BOOKKEEPING
from helpers.pytorch import private_torch
from helpers.pytorch.dispatch_mode import Unseen

#: seconds of processor time after which no further case of a request is run again
ENOUGH_S = 0.03
#: what reading a result asks for, at most so often for each of its tensors
READING = {"aten.clone": 1, "aten.detach": 2, "aten.view": 2}
#: operators that a simulated GPU may run of its own in a case, beside one in twenty of those that are counted
_OF_SIMULATION = 8
#: what makes no new numbers, nor takes memory; torch.tensor() detaches what it has made where no mode looks
_UNSEEN = BOOKKEEPING | {"aten.detach_", "aten.set_"}
#: of c10's RecordScope: an operator; ranges that Python names are others
_FUNCTION = 0
_LIBRARIES = frozenset(
    "_quantized inductor mkl mkldnn mkldnn_prepacked onednn prepacked quantized sparse static_runtime xnnpack".split()
)
#: counters that may be as much larger, when the calls are made in the other order, as a cache explains: this share, and so
#: much a case
_COSTS = {
    "operators": 2,
    "copies": 1,
    "syncs": 0,
    "flops": 4096,
    "bytes_allocated": 4096,
    "saved_bytes": 4096,
}
_SHARE = 0.5
#: what printing a tensor asks for, unseen by the counters, which have a sync for it; no operator that computes a result
_PRINTING = frozenset(
    f"aten.{name}"
    for name in """_local_scalar_dense _reshape_alias _to_copy abs bitwise_and cat ceil div eq fill_ gt isfinite lt masked_select max
    min mul ne select slice stack unbind view view_as_real""".split()
)
_PRINTS = {"Tensor.__repr__", "Tensor.__format__"}
#: the most operators that a sentence names
_TOLD = 5


class Seen:
    """Within this block, the profiler's callbacks note what the dispatcher is asked for, in this thread and in backward's.

    RuntimeError at its end: they were ended within it, and others begun.
    """

    def __enter__(self) -> "Seen":
        self._threads: list[list[Any]] = []
        Unseen.told_as = self._unseen = f"unseen {random.SystemRandom().random()}"
        state, options = torch.autograd.ProfilerState.CPU, private_torch.ProfilerOptions()
        private_torch.observe(private_torch.ProfilerConfig(state, *[False] * 5, options))
        # who ends the observers, and starts others in their place, cannot know what these were told first
        with torch.autograd.profiler.record_function(self._unseen):
            pass
        return self

    def __exit__(self, *_: object) -> None:
        self._threads, Unseen.told_as = private_torch.observed(), ""
        if not any(event.name() == self._unseen for events in self._threads for event in events):
            raise RuntimeError("others observe in the place of these, which an answer has ended")

    def operators(self, whole: Set[str]) -> "Counter[str]":
        """Times by name, ``"aten.mul"``: of an operator in ``whole`` as it is, else of those that it is made of."""
        times, sums, others = Counter[str](), _sums(), _others()
        for events in self._threads:
            within: list[bool] = []  # of each open event: is it, or one around it, counted?
            for event in events:
                kind = event.kind()
                if kind == "pop" and within:
                    within.pop()
                elif kind == "push":
                    name, inside = event.name(), bool(within and within[-1])
                    op = name.replace("::", ".")
                    # a range that an answer has named like an operator is none
                    real = event.scope() == _FUNCTION
                    counted = real and (
                        name.startswith("aten::") and (op in whole or op not in sums) or name in others
                    )
                    times[op] += counted and not inside
                    within.append(inside or counted or name == self._unseen and not real)
        return +times


@cache
def _others() -> frozenset[str]:
    """Operators of libraries beside PyTorch's own that compute: those that are there before an answer runs."""
    names = (name.partition(".")[0] for name in private_torch.operator_names())
    return frozenset(name for name in names if name.partition("::")[0] in _LIBRARIES)


@cache
def _sums() -> frozenset[str]:
    """Operators that are made of others, in one of their forms at least."""
    has, on = private_torch.has_kernel, "CompositeImplicitAutograd"
    names = [name for name in private_torch.operator_names() if name.startswith("aten::")]
    sums = {name.partition(".")[0] for name in names if has(name, on) and not has(name, "CPU")}
    return frozenset(name.replace("::", ".") for name in sums)


def differs(reports: list[dict[str, Any]], again: list[dict[str, Any]]) -> str:
    """Both counts, where they are not the same; "" if they are.

    reports: of a request's cases, as they were counted; again: of some or all of them, as they were recounted, last first.
    """
    for counts in (report["counts"] for report in reports if report.get("counts")):
        sums = sum(counts["by_operator"].values()), sum(nbytes for _, nbytes in counts["allocations"])
        if sums != (counts["operators"], counts["bytes_allocated"]):
            return f"its counts of {counts['operators']} operators and {counts['bytes_allocated']} bytes are no sums of their parts, {sums}"
    for one in again:
        if one["error"]:
            return f"it raised {one['error']} when its calls were made in the other order"
        printed = one["counts"] is not None and not _PRINTS.isdisjoint(one["counts"]["sync_by"])
        if text := _told(one["counted"], one["seen"], bool(one["simulated"]), printed):
            return text
        late = {name: n for name, n in one["late"].items() if n > READING.get(name, 0) * one["tensors"]}
        if late:
            return f"while its result was read, which takes no operators of its own, PyTorch's observers saw {_listed(late)}"
    # a case may make what later ones keep, and which that is follows from their order
    sides = [reports[len(reports) - len(again) :], again]
    for name, slack in _COSTS.items():
        was, now = (sum((one.get("counts") or {}).get(name, 0) for one in side) for side in sides)
        if now > was * (1 + _SHARE) + slack * len(again):
            return f"its {name} were {was:,}, and {now:,} when its calls were made in the other order"
    return ""


def _told(
    counted: Mapping[str, int] | None, seen: Mapping[str, int], simulated: bool = False, printed: bool = False
) -> str:
    """Both, of the operators that were seen more often than they were counted; "" if none was, or nothing was counted.

    Some are counted that the observers do not see: what a mode takes apart. That most are not seen tells of observers ended.
    simulated: a simulated GPU runs some operators of its own, which are seen and not counted. printed: so does printing.
    """
    if counted is None:
        return ""
    # of a name that is one operator and several, `max` of one tensor and of two, nothing tells which was seen
    more = [n for n in seen if n not in _UNSEEN | _sums() and seen[n] > counted.get(n, 0)]
    more = [n for n in more if n not in _PRINTING] if printed else more
    beyond = sum(seen[name] - counted.get(name, 0) for name in more)
    if simulated and beyond <= _OF_SIMULATION + sum(counted.values()) // 20:
        more = []
    known = [name for name in counted if name not in _UNSEEN | _sums()]
    if not more and 2 * sum(seen.values()) < sum(counted[name] for name in known):
        more = known
    pairs = [{name: side.get(name, 0) for name in more} for side in (counted, seen)]
    return (
        more
        and f"the counters had {_listed(pairs[0])}, and PyTorch's own observers {_listed(pairs[1])}"
        or ""
    )


def _listed(times: Mapping[str, int]) -> str:
    more = f" and {len(times) - _TOLD} more" if len(times) > _TOLD else ""
    return ", ".join(f"{name} ×{n}" for name, n in [*times.items()][:_TOLD]) + more
