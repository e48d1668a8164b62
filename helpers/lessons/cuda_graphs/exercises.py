"""Tests of lesson 07: captured steps against ordinary loops, what a replay costs, and whether it pays."""

import math
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from helpers import check, simulate
from helpers.check.judges import each, predicted
from helpers.check.results import plain
from helpers.check.sealed import sealed

_HOLDS = "2 · A recording holds addresses and numbers"


def _captures(gpu: Any, since: int = 0) -> int:
    """How many graphs were made since the host's record had this length."""
    return sum(h.name == "cudaGraphInstantiate" for h in gpu.host[since:])


# --- 7.2 GraphedStep ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Epoch:
    """Batches x (rows, wide), y (rows, 4) for a step with this optimizer; a tuple is the shape before the last dimension.
    one_target: those whose y is one row for all. labels: y is (rows,) int64, classes. one_buffer: the caller writes each
    batch into the memory of the last one of its shape.
    """

    optimizer: str
    batches: tuple[int | tuple[int, ...], ...]
    warm_up: int
    wide: int = 10
    one_target: tuple[int, ...] = ()
    labels: bool = False
    one_buffer: bool = False

    def __str__(self) -> str:
        return f"{self.optimizer}, warm_up={self.warm_up}"

    def shapes(self) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Of x and of y in each call."""
        rows = [n if isinstance(n, tuple) else (n,) for n in self.batches]
        if self.labels:
            return [((*n, self.wide), n) for n in rows]
        return [((*n, self.wide), (1, 4) if i in self.one_target else (*n, 4)) for i, n in enumerate(rows)]

    def full(self) -> list[int]:
        """The calls of the first one's shapes."""
        return [i for i, shapes in enumerate(self.shapes()) if shapes == self.shapes()[0]]

    def data(self) -> list[tuple[Tensor, Tensor]]:
        g = torch.Generator().manual_seed(len(self.batches) + self.wide)
        pairs = [(torch.randn(x, generator=g), torch.randn(y, generator=g)) for x, y in self.shapes()]
        return [(x, y.gt(0).long() if self.labels else y) for x, y in pairs]


def _model(epoch: Epoch, device: Any, **options: Any) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(1)
    sgd = epoch.optimizer == "SGD"
    norm = nn.BatchNorm1d(24, affine=False) if sgd else nn.LayerNorm(24, bias=False)
    first = nn.Linear(epoch.wide, 24, bias=False)
    model = nn.Sequential(first, norm, nn.GELU(), nn.Linear(24, 4)).to(device)
    if sgd:
        return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    return model, torch.optim.AdamW(model.parameters(), lr=0.01, **options)


def _loss(out: Tensor, y: Tensor) -> Tensor:
    if not y.is_floating_point():
        return nn.functional.cross_entropy(out, y)
    return (out - y).square().mean()  # nn.MSELoss warns when y is one row for all


def _ordinary(
    epoch: Epoch, device: Any, steps: int | None = None, **options: Any
) -> Iterator[tuple[nn.Module, float]]:
    """The model after each step of an ordinary loop, and the step's loss. steps: so many with the first batch."""
    model, optimizer = _model(epoch, device, **options)
    for x, y in epoch.data()[:1] * steps if steps else epoch.data():
        optimizer.zero_grad()
        loss = _loss(model(x), y)
        loss.backward()
        optimizer.step()
        yield model, float(loss.detach())


def _state(model: nn.Module) -> list[float]:
    return [number for v in model.state_dict().values() for number in v.detach().flatten().tolist()]


@cache
def _by_hand(epoch: Epoch) -> tuple[list[float], list[float]]:
    """Losses and the state at the end, of an ordinary loop."""
    steps = list(_ordinary(epoch, "cpu"))
    return [loss for _, loss in steps], _state(steps[-1][0])


def _run_epoch(GraphedStep: Callable[..., Any], **fields: Any) -> dict[str, Any]:
    """Call the step on each batch, spoil the batch, read all losses at the end; what each call put into the queue.

    rows: of each call the launches, kernels of a graph, waits and captures. usual: kernels of an ordinary step. held:
    how many losses have memory that lives on when the caller has dropped them.
    """
    epoch = Epoch(**fields)
    gpu, data, shapes = simulate("H100", values=True, strict=False), epoch.data(), epoch.shapes()
    rows: list[list[int]] = []
    losses, usual = list[Any](), 0
    given: list[Tensor] = []
    buffers: dict[Any, Tensor] = {}
    with gpu:
        before = 0
        for _ in _ordinary(epoch, gpu.device, steps=2, capturable=True):
            before, usual = len(gpu.kernels), len(gpu.kernels) - before
        model, optimizer = _model(epoch, gpu.device, capturable=True)
        step = GraphedStep(sealed(gpu), model, optimizer, _loss, epoch.warm_up)
        for i, (x, y) in enumerate(data):
            x, y = x.clone(), y.clone()
            if epoch.one_buffer:
                x, y = (buffers.setdefault((name, t.shape), t).copy_(t) for name, t in (("x", x), ("y", y)))
            gpu.synchronize()
            launches, kernels, syncs, host = gpu.launches, len(gpu.kernels), gpu.syncs, len(gpu.host)
            try:
                losses.append(plain(step(x, y)))
            except Exception as error:
                if shapes[i] == shapes[0]:
                    raise
                return {"odd": f"call {i + 1} has x, y of {shapes[i]} and not {shapes[0]}: {error}"}
            graphed = sum(k.graph > 0 for k in gpu.kernels[kernels:])
            rows.append([gpu.launches - launches, graphed, gpu.syncs - syncs, _captures(gpu, host)])
            gpu.synchronize()
            # the caller's own, to do with as he likes
            given += [t.fill_(math.nan if t.is_floating_point() else 0) for t in (x, y)]
        gpu.synchronize()
        results = {
            "losses": [float(loss) for loss in losses],
            "attached": any(loss.requires_grad for loss in losses),
            "state": _state(model),
            "rows": rows,
            "usual": usual,
            "untouched": all(not t.nan_to_num(0).any().item() for t in given),
        }
        storages = [weakref.ref(loss.untyped_storage()) for loss in losses]
        losses.clear()
        results["held"] = sum(storage() is not None for storage in storages)
    return results | {"faults": list(gpu.faults) or _unwaited(GraphedStep, epoch)}


def _unwaited(GraphedStep: Callable[..., Any], epoch: Epoch) -> list[str]:
    """Races of the epoch, if nobody waits between its calls, and the caller's stream is not always the one before."""
    gpu = simulate("H100", strict=False)
    with gpu:
        model, optimizer = _model(epoch, gpu.device, capturable=True)
        step = GraphedStep(sealed(gpu), model, optimizer, _loss, epoch.warm_up)
        own = [gpu.current_stream(), gpu.Stream()]
        for i, (x, y) in enumerate(epoch.data()):
            own = (
                own[::-1] if i % 3 < 2 else own
            )  # made in one, called first in the other, then twice in the first
            own[0].wait_stream(own[1])
            try:
                with gpu.stream(own[0]):
                    step(x.to(gpu.device), y.to(gpu.device)).add(0)
            except Exception:  # it did not raise where there are values: it asks for one
                break
    return [fault for fault in gpu.faults if fault.startswith("race: ")]


def _wrong_values(report: check.Report) -> str | None:
    epoch, got = report.case, report.value
    if "odd" in got:
        return str(got["odd"])
    losses, state = _by_hand(epoch)
    why = ""
    if got["rows"][0][3]:
        why = ". The first call captured: the optimizer's state must exist before, by ordinary steps"
    if got["faults"]:
        if got["faults"][0].startswith("race: "):
            why = why or " The stream that is current for the caller is here not the same in all calls."
        return f"the simulated GPU complains: {got['faults'][0]}{why}"
    for i, (mine, true) in enumerate(zip(got["losses"], losses, strict=True)):
        if abs(mine - true) <= 2e-3 * abs(true):
            continue
        if got["rows"][i][3] and not got["rows"][i][1]:
            return f"the step of call {i + 1} was recorded but never run: replay in the same call"
        if got["losses"].count(mine) > 1 or mine != mine:
            why = ". Does the tensor you returned survive the next replay, and the batch's end?"
        if epoch.one_buffer:
            why = why or ". Here the caller writes each batch into the memory of the one before"
        return (
            f"call {i + 1} of {len(losses)}, x of {epoch.shapes()[i][0]}: the loss, read after the last call, is "
            f"{mine:.5f}; an ordinary loop has {true:.5f}{f' (the {i} before it are right)' if i else ''}{why}"
        )
    if not torch.allclose(torch.tensor(got["state"]), torch.tensor(state), rtol=5e-3, atol=1e-4):
        return "all losses are right, but the weights or the running means at the end are not"
    if got["attached"]:
        return "a returned loss still requires grad: detach it"
    if not got["untouched"]:
        return "a later call wrote into a batch that belongs to the caller: keep static tensors of your own"
    if got["held"] > 1:  # the last one is written again by nobody
        return (
            f"the memory of {got['held']} of {len(losses)} returned losses is still held when the caller has dropped them. "
            "Is it yours, to be written again after so many calls? Return a tensor with memory of its own, each time"
        )
    return None


def _wrong_cost(report: check.Report) -> str | None:
    epoch, got = report.case, report.value
    full, rows, usual = epoch.full(), got["rows"], got["usual"]
    for i in sorted(set(range(len(rows))) - set(full)):
        if rows[i][1] or rows[i][3]:
            return f"call {i + 1} captured or replayed a graph, and has other shapes than the first call: the graph is for those"
    begun = next((i for i in full if rows[i][1]), full[-1])
    if sum(rows[i][0] for i in full if i <= begun) < 0.9 * epoch.warm_up * usual:
        return (
            f"call {begun + 1} replays a graph before there were {epoch.warm_up} ordinary steps of its shapes; "
            "calls of other shapes are no warm-up for it"
        )
    first, *later = full[epoch.warm_up :]
    if not rows[first][1]:
        return f"call {first + 1}, the first after the warm-up, replays nothing: capture and replay"
    for i in later:
        launches, graphed, syncs, captures = rows[i]
        if captures:
            return f"call {i + 1} captured again, which costs more than an ordinary step: capture once"
        if launches > 4:
            return f"call {i + 1} made {launches} launches, wanted at most 4: x in, y in, replay, loss out"
        if graphed < 0.8 * usual:
            return (
                f"call {i + 1} replayed {graphed} kernels of a graph; an ordinary step has {usual}: forward, "
                "backward and optimizer belong into the graph"
            )
        if syncs:
            return f"call {i + 1} made the CPU wait {syncs} time(s)"
    captures = sum(row[3] for row in rows)
    most = "wanted one: one graph serves all calls of its shapes, and no others"
    return f"{captures} captures in all, {most}" if captures > 1 else None


def check_GraphedStep(*cases: Epoch) -> None:
    judge, look = each(_wrong_values, _wrong_cost, told=True), f"1 · One launch for a whole step; {_HOLDS}"
    check.function("GraphedStep", cases, drive=_run_epoch, verify=judge, look=look)


# --- 7.1 scorer, smoother, updater --------------------------------------------------------------------------------


def calls(first: tuple[int, ...], each: tuple[int, ...], n: int, *numbers: float) -> check.Case:
    """The tensor that a program is made with, those of its n calls, and numbers: the rate, or one for each call."""
    g = torch.Generator().manual_seed(n)
    start, *given = (torch.randn(shape, generator=g) for shape in (first, *[each] * n))
    return check.case(start, given, list(numbers))


def _replay(
    program: Callable[..., Any], first: Tensor, given: list[Tensor], numbers: list[float], kind: str
) -> dict[str, Any]:
    """Make the program, call it on each tensor, spoil the tensor, and read all results at the end.

    An updater's calls change the first tensor, and take a number too. cost: for each call the launches, replayed
    graphs, captures, copies from or to the CPU, waits, and what was computed outside the graph.
    """
    gpu, kept, cost = simulate("H100", values=True, strict=False), [], []
    updates = kind == "updater"
    moves = ("copy", "clone", "fill", "full", "zero")
    with gpu:
        start, example = first.clone(), given[0].clone()
        more: dict[str, list[Any]] = {"scorer": [example], "smoother": numbers, "updater": []}
        run = program(sealed(gpu), start, *more[kind])
        for i, tensor in enumerate(given):
            batch = tensor.clone()
            gpu.synchronize()
            launches, kernels, host = gpu.launches, len(gpu.kernels), len(gpu.host)
            out = plain(run(batch, numbers[i]) if updates else run(batch))
            ran = gpu.kernels[kernels:]
            replays, copies = len({k.graph for k in ran} - {0}), sum(k.kind != "kernel" for k in ran)
            waits = sum(h.kind == "sync" for h in gpu.host[host:])
            outside = [k.name for k in ran if not k.graph and k.flops > 1 and k.kind == "kernel"]
            outside = [name for name in outside if not any(word in name for word in moves)]
            cost.append([gpu.launches - launches, replays, _captures(gpu, host), copies, waits, outside])
            gpu.synchronize()
            kept.append(start.clone() if updates else out)
            batch.fill_(math.nan)
        gpu.synchronize()
        return {
            "values": [k.tolist() for k in kept],
            "cost": cost,
            "captures": _captures(gpu),
            "same": torch.equal(example, given[0]) and (updates or torch.equal(start, first)),
            "faults": list(gpu.faults),
        }


def _states(first: Tensor, given: list[Tensor], numbers: list[float]) -> list[Tensor]:
    out, rate = [first], numbers[0] if numbers else 0.25
    for new in given:
        out.append(out[-1] + rate * (new - out[-1]))
    return out[1:]


def _weights(first: Tensor, given: list[Tensor], numbers: list[float]) -> list[Tensor]:
    out, weight, mean = [], first, torch.zeros_like(first)
    for i, (grad, lr) in enumerate(zip(given, numbers, strict=True)):
        mean = 0.9 * mean + 0.1 * grad
        weight = weight - lr * mean / (1 - 0.9 ** (i + 1))
        out.append(weight)
    return out


_SCORES = lambda first, given, _: [torch.tanh(x @ first).square().sum(dim=1) for x in given]  # noqa: E731
_BY_HAND: dict[str, Any] = {"scorer": _SCORES, "smoother": _states, "updater": _weights}


def _hint(kind: str, i: int, values: list[Tensor], wanted: list[Tensor], first: Tensor) -> str:
    """What may have gone wrong, if call i is the first whose value is not as wanted."""
    if kind == "updater":
        still = all(torch.equal(v, first) for v in values)
        return "`weight` itself was never written" if still else "two numbers change from call to call"
    if kind == "scorer" and i and torch.equal(values[i], values[0]):
        if torch.allclose(values[i], wanted[0], rtol=1e-3):
            return "that is the answer of call 1: what does the graph read?"
    if all(torch.equal(v, values[0]) for v in values):
        return "all calls returned the same tensor: the next replay overwrites it"
    for later in range(i + 1, len(wanted)):
        if torch.allclose(values[i], wanted[later], rtol=1e-3, atol=1e-5):
            return f"that is the result of call {later + 1}, which wrote into the tensor that this one had returned"
    if kind == "scorer":
        return "which tensor does the graph read?"
    return "where is the new state written, and where does the next replay read it?"


def _wrong_replay(report: check.Report) -> str | None:
    got, (first, given, numbers, kind) = report.value, report.args
    wanted, most = _BY_HAND[kind](first, given, numbers), 4 if kind == "updater" else 3
    if got["faults"]:
        return f"the simulated GPU complains: {got['faults'][0]}"
    values = [torch.tensor(v) for v in got["values"]]
    for i, (mine, true) in enumerate(zip(values, wanted, strict=True)):
        if not torch.allclose(mine, true, rtol=1e-3, atol=1e-5):
            heads = [t.flatten()[:3].tolist() for t in (mine, true)]
            return (
                f"call {i + 1} of {len(values)}, read after the last: {heads[0]}, wanted {heads[1]} "
                f"(at most three numbers shown). {_hint(kind, i, values, wanted, first)}"
            )
    for i, (launches, replays, captures, copies, waits, outside) in enumerate(got["cost"], 1):
        if captures and i > 1:
            return f"call {i} replayed another graph than call {i - 1}: capture once"
        if replays != 1 or launches > most:
            return (
                f"call {i}: values are right, with {launches} launches and {replays} replay(s); wanted one replay "
                f"and at most {most} launches in all"
            )
        if copies or (waits and not captures):
            crossed = f"{copies} copies between CPU and GPU, the CPU waited {waits} time(s)"
            return f"call {i}: {crossed}; wanted none"
        if outside:
            return f"call {i}: values are right, but {outside[0]} runs outside the graph, launched by itself"
    if got["captures"] > 1:
        return f"{got['captures']} captures for {len(values)} calls: one graph is captured once and serves them all"
    return None if got["same"] else "a tensor of the caller's was changed: work on a clone"


def _check_replays(name: str, *cases: check.Case) -> None:
    named = [check.case(*case.args, name) for case in cases]
    check.function(name, named, drive=_replay, verify=each(_wrong_replay), look=_HOLDS)


check_scorer = partial(_check_replays, "scorer")
check_smoother = partial(_check_replays, "smoother")
check_updater = partial(_check_replays, "updater")


def three_calls(**programs: Callable[..., Any]) -> list[tuple[str, ...]]:
    """A row for each program: the first number of three results, read after the last call, and what it should be."""
    cases = {
        "scorer": calls((2, 2), (1, 2), 3),
        "smoother": calls((1,), (1,), 3),
        "updater": calls((1,), (1,), 3, 0.1, 0.05, 0.03),
    }
    rows = []
    for name, program in programs.items():
        first, given, numbers = cases[name].args
        results = _replay(program, first, given, numbers, name)["values"]
        pairs = zip(map(torch.tensor, results), _BY_HAND[name](first, given, numbers), strict=True)
        rows.append((name, *(f"{got.flatten()[0]:.3f} ({want.flatten()[0]:.3f})" for got, want in pairs)))
    return rows


# --- 7.3 robust_step ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Marked:
    """A start, and for each replay rows of this kind, some of them marked.

    kinds: "some", "all", "none" of the rows marked; "dirty": nan and inf where not marked; "bad": inf in a marked row;
    "huge": in a marked row a finite number, whose square is not; "tiny": numbers of 1e-3, and so gradients of 1e-6.
    """

    weight: tuple[float, ...]
    rows: int
    kinds: tuple[str, ...]
    lr: float
    max_norm: float

    def data(self) -> list[tuple[Tensor, Tensor, Tensor]]:
        """For each replay x (rows, n), which lies by columns, y (rows,) and keep (rows,)."""
        g, out = torch.Generator().manual_seed(self.rows), []
        for kind in self.kinds:
            x, y = torch.randn(self.rows, len(self.weight), generator=g), torch.randn(self.rows, generator=g)
            x, y = (t * 1e-3 if kind == "tiny" else t for t in (x, y))
            keep = torch.rand(self.rows, generator=g) < {"all": 2.0, "none": -1.0}.get(kind, 0.6)
            if kind == "dirty":
                keep[0] = keep[1] = False
                x[0], y[1] = math.nan, math.inf
            if kind in ("bad", "huge"):
                keep[2], x[2, 0] = True, math.inf if kind == "bad" else 1e30
            out.append((x.t().contiguous().t(), y, keep))
        return out


def _capture(robust_step: Callable[..., None], **fields: Any) -> dict[str, Any]:
    """Capture the step after one ordinary call, and replay it on all data."""
    case = Marked(**fields)
    gpu, data, start = simulate("H100", values=True, strict=False), case.data(), torch.tensor(case.weight)
    weights, replayed, given = [], 0, True
    with gpu:
        w, (x, y, keep) = start.clone(), (t.clone() for t in data[0])
        robust_step(w, x, y, keep, case.lr, case.max_norm)  # what comes only with the first call
        w.copy_(start)
        graph, before = gpu.CUDAGraph(), len(gpu.kernels)
        with gpu.graph(graph):
            robust_step(w, x, y, keep, case.lr, case.max_norm)
        outside = len(gpu.kernels) - before
        for new in [] if gpu.faults else data:
            for static, t in zip((x, y, keep), new, strict=True):
                static.copy_(t)
            before = len(gpu.kernels)
            graph.replay()
            replayed = len(gpu.kernels) - before
            weights.append(w.clone())
            pairs = zip((x, y, keep), new, strict=True)
            given &= all(torch.allclose(a, b, 0, 0, equal_nan=True) for a, b in pairs)
        gpu.synchronize()
        copies = sum(k.kind != "kernel" for k in gpu.kernels)
        results = {"weights": [v.tolist() for v in weights], "faults": list(gpu.faults), "copies": copies}
        return results | {"outside": outside, "replayed": replayed, "given": given}


@cache
def _as_written(case: Marked) -> list[Tensor]:
    """The weight after each step of the exercise's own text."""
    weight, out = torch.tensor(case.weight), []
    for x, y, keep in case.data():
        rows, target = x[keep], y[keep]
        if len(rows):
            grad = 2 * rows.T @ (rows @ weight - target) / len(rows)
            norm = grad.norm()
            if norm > case.max_norm:
                grad = grad * (case.max_norm / norm)
            if torch.isfinite(norm):
                weight = weight - case.lr * grad
        out.append(weight)
    return out


_WHERE = {
    "dirty": ", with nan or inf in rows that are not marked",
    "bad": ", with nan or inf in a marked row",
    "huge": ", with a number so large that the norm is not finite",
    "tiny": ", with a gradient of about 1e-6",
}


def _wrong_capture(report: check.Report) -> str | None:
    case, got = report.case, report.value
    if got["faults"]:
        kinds = dict.fromkeys(fault.split(": ")[1] for fault in got["faults"])
        return f"the capture was refused {len(got['faults'])} time(s), because of {', '.join(kinds)}.\n  {got['faults'][0]}"
    if not got["replayed"]:
        return "the capture holds no kernel"
    weights, start = [torch.tensor(w) for w in got["weights"]], torch.tensor(case.weight)
    for i, (mine, true) in enumerate(zip(weights, _as_written(case), strict=True)):
        if not torch.allclose(mine, true, rtol=1e-3, atol=1e-5):
            if all(torch.equal(w, start) for w in weights):
                return "`weight` itself was never written: the name was bound to a new tensor, or nothing was done"
            keep = case.data()[i][2]
            return (
                f"replay {i + 1}: {int(keep.sum())} of {len(keep)} rows marked{_WHERE.get(case.kinds[i], '')}: weight "
                f"{mine[:3].tolist()} …, wanted {true[:3].tolist()} …"
            )
    if got["copies"] or got["outside"]:
        return f"{got['copies']} copies between CPU and GPU, {got['outside']} kernels outside the graph; wanted none"
    return None if got["given"] else "x, y or keep was changed: they are the caller's"


def check_robust_step(*cases: Marked) -> None:
    judge, look = each(_wrong_capture), "Further, What cannot be captured"
    note = "no answer from the GPU, no size that depends on values, and weight changed at its address"
    check.function("robust_step", cases, drive=_capture, verify=judge, look=look, note=note)


# --- 7.4 does_it_pay ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Loop:
    """Kernels on tensors of these sizes, inputs of these to be copied, and what of the GPU is not as the signature says."""

    sizes: tuple[int, ...]
    inputs: tuple[int, ...]
    waits: bool
    capture_s: float = 1e-3
    launch_s: float = 6e-6
    graph_launch_s: float = 10e-6
    latency_s: float = 2e-6
    wait_s: float = 4e-6


@cache
def _measured(loop: Loop) -> tuple[check.Case, float, float, float]:
    """The arguments that describe the loop, and what the simulated GPU takes."""
    # an argument → the GPU's own name for it
    names = {
        "launch_s": "operator_s",
        "latency_s": "launch_latency_s",
        "wait_s": "sync_s",
        "graph_launch_s": "graph_launch_s",
    }
    costs = {name: getattr(loop, name) for name in names}
    with (gpu := simulate("H100", **{names[name]: cost for name, cost in costs.items()})):
        work = [torch.empty(n, device=gpu.device) for n in loop.sizes]
        pairs = [[torch.empty(n, device=gpu.device) for _ in range(2)] for n in loop.inputs]

        def step() -> None:
            for t in work:
                t.mul_(2)

        def seconds(graph: Any, steps: int = 20) -> float:
            """Of a step, in the second half of a loop."""
            ends = []
            for _ in range(steps):
                for static, fresh in pairs if graph else ():
                    static.copy_(fresh)
                graph.replay() if graph else step()
                if loop.waits:
                    gpu.synchronize()
                ends.append(gpu.clock() if loop.waits else gpu.kernels[-1].end_ns / 1e9)
            gpu.synchronize()
            return float((ends[-1] - ends[steps // 2]) / (steps - 1 - steps // 2))

        for static, fresh in pairs:
            static.copy_(fresh)
        step()
        gpu.synchronize()
        eager, graph = seconds(None), gpu.CUDAGraph()
        with gpu.graph(graph):
            step()
        graphed = seconds(graph)
    n, last = len(loop.inputs), gpu.kernels[-len(loop.sizes) - len(loop.inputs) :]
    times = [k.duration_s for k in last]
    case = check.case(times[n:], times[:n], loop.waits, loop.capture_s, **costs)
    pays = graphed < eager * 0.9999
    return case, eager, graphed, loop.capture_s / (eager - graphed) if pays else math.inf


def _predict(does_it_pay: Callable[..., Any], **fields: Any) -> Any:
    asked = _measured(Loop(**fields))[0]
    return predicted(does_it_pay, *asked.args, **asked.kwargs)


def _wrong_prediction(report: check.Report) -> str | None:
    (asked, *truth), got = _measured(report.case), [math.inf if v > 1e9 else float(v) for v in report.value]
    kernels, copies, waits, capture_s = asked.args
    total = sum(kernels) * 1e6
    what = f"{len(kernels)} kernels of {total:.1f} µs in all, {len(copies)} copies, waits={waits}"
    hint = "CPU and GPU work at the same time, on different steps"
    if waits:
        hint = "each step begins with an idle GPU; a kernel starts when its launch arrived and the one before is done"
    for name, mine, true in zip(("an eager step", "a graphed step"), got, truth, strict=False):
        if not abs(mine / true - 1) <= 0.03:
            return (
                f"{what}: {name} takes {true * 1e6:.1f} µs on the simulated GPU, you say {mine * 1e6:.1f} µs "
                f"(3 % allowed): {hint}"
            )
    if not (got[2] == truth[2] or abs(got[2] / truth[2] - 1) <= 0.05):
        return f"{what}, capture {capture_s * 1e6:.0f} µs: paid back after {truth[2]:.2f} steps, you say {got[2]:.2f}"
    return None


def check_does_it_pay(*loops: Loop) -> None:
    look = "3 · When does it help?; Further, Does it pay?"
    check.function("does_it_pay", loops, drive=_predict, verify=each(_wrong_prediction), look=look)
