"""Code that sources tell one to type, run as it is written and as it should be: what verdicts of the table rest on.

    from helpers.lessons.sources_on_trial import snippets

    snippets.outcome("compile-300/network")       # (what happened as written, as it should be)

Each is run in a minimal form: the source's calls and arguments, our names and data. What stands in a sentence is typed as
it stands there, empty parentheses too. The same on every machine: what asks for a GPU runs on the simulated one, or on the
CPU where the compiler is needed, and the result says on which.
"""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from helpers import compiling
from helpers.pytorch import private_torch
from helpers.simulator import SimGPU, simulate

#: where a snippet is run that asks for a GPU
SIMULATED, CPU = "on the simulated GPU", "on the CPU"

# --- how a snippet is run -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Snippet:
    """A snippet of a source. as_written, as_it_should: run it, and say in a line what happened.

    id: "<source>/<its name>". section: as the source numbers or calls it. what: the call that matters.
    """

    id: str
    section: str
    what: str
    as_written: Callable[[], str]
    as_it_should: Callable[[], str]

    @property
    def source(self) -> str:
        """A key of :func:`helpers.lesson.sources.every`."""
        return self.id.partition("/")[0]


def snippet(
    id: str, section: str, what: str, written: Callable[[], str], should: Callable[[], str], where: str
) -> Snippet:
    """A Snippet whose two callables say what happened, and on what."""
    return Snippet(id, section, what, _in_a_line(written, where), _in_a_line(should, where))


def _in_a_line(run: Callable[[], str], where: str) -> Callable[[], str]:
    """The same as one line: where, what was warned of as deprecated, and what `run` returned or raised."""

    @functools.wraps(run)
    def line() -> str:
        notes: list[str] = []
        try:
            with _alone(notes):
                result = f"runs; {run()}"
        except Exception as problem:
            result = _named(problem)
        return f"{where}: {''.join(dict.fromkeys(notes))}{result}"

    return line


@contextlib.contextmanager
def _alone(notes: list[str]) -> Iterator[None]:
    """Seeded, with nothing compiled before or left behind, and nothing printed; `notes` gets what warns of the snippet's own calls."""
    torch.compiler.reset()
    logging.disable(logging.ERROR)
    try:
        with (
            warnings.catch_warnings(record=True) as caught,
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
            torch.random.fork_rng(devices=[]),
        ):
            warnings.simplefilter("always")
            torch.manual_seed(0)
            yield
    finally:
        logging.disable(logging.NOTSET)
        torch.compiler.reset()
        # not what a library says of itself, once a process
        ours = [w for w in caught if w.filename == __file__ and issubclass(w.category, FutureWarning)]
        notes += [f"{w.category.__name__}: {_first_sentence(str(w.message))}; " for w in ours]


def _named(problem: Exception) -> str:
    return f"{type(problem).__name__}: {_first_sentence(str(problem))}"


def _first_sentence(text: str, longest: int = 150) -> str:
    """Of a message: in one line, without its full stop."""
    line = " ".join(re.split(r"\.\s|\n", text.strip())[0].split()).rstrip(".:")
    line = re.sub(r"\w+\.<locals>\.", "", line)
    return line if len(line) <= longest else line[:longest].rpartition(" ")[0] + " …"


def _captured(run: Callable[[], Any]) -> str:
    """Run what compiles something, with the backend "eager" in the place of Inductor: how much was captured."""
    with compiling.watch("eager") as w:
        run()
    return f"{counted(len(w.graphs), 'graph')} of {counted(w.operators, 'operator')}"


def counted(n: int, what: str) -> str:
    """ "1 graph", "2 graphs"."""
    return f"{n:,} {what}" + ("" if n == 1 else "es" if what.endswith("ch") else "s")


# --- torch.compile in practice ------------------------------------------------------------------------------------


class Pictures(nn.Module):
    """A convolution, ReLU, pooling and a linear layer for pictures of 3 × 32 × 32. flat: how it gets its rows."""

    def __init__(self, flat: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.conv, self.relu, self.pool = nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2, 2)
        self.fc, self.flat = nn.Linear(16 * 16 * 16, 10), flat

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.fc(self.flat(self.pool(self.relu(self.conv(x)))))
        return out


def _rows(model: nn.Module) -> str:
    def of(side: int) -> str:
        try:
            return f"{side}×{side}: {tuple(model(torch.rand(1, 3, side, side)).shape)}"
        except RuntimeError as problem:
            return f"{side}×{side}: {_named(problem)}"

    return f"one picture of {of(32)}; of {of(64)}"


def network_written() -> str:
    return _rows(Pictures(lambda x: x.view(-1, 16 * 16 * 16)))


def network_should() -> str:
    return _rows(Pictures(lambda x: x.flatten(1)))


def _mode(name: str) -> str:
    torch.compile(torch.relu, mode=name)
    options = private_torch.list_mode_options(name)
    return "sets " + ", ".join(f"{key}={value}" for key, value in options.items())


def autotune_written() -> str:
    return _mode("max-autotune")


def autotune_should() -> str:
    return _mode("max-autotune-no-cudagraphs")


def _amp(make_scaler: Callable[[], Any], autocast: Callable[[], Any]) -> str:
    with simulate("H100") as gpu:
        model, criterion = nn.Linear(16, 4, device=gpu.device), nn.CrossEntropyLoss()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
        scaler = make_scaler()
        for _ in range(2):
            x, y = torch.rand(8, 16).to(gpu.device), torch.randint(4, (8,)).to(gpu.device)
            optimizer.zero_grad()
            with autocast():
                output = model(x)
                loss = criterion(output, y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    return f"2 steps, the model's result is {str(output.dtype).removeprefix('torch.')}"


def amp_written() -> str:
    return _amp(torch.cuda.amp.GradScaler, torch.cuda.amp.autocast)


def amp_should() -> str:
    return _amp(lambda: torch.amp.GradScaler("cuda"), lambda: torch.autocast("cuda", dtype=torch.float16))


def _gpu_memory(gpu: SimGPU) -> str:
    return f"{gpu.memory_reserved() >> 20} MiB reserved"


def fraction_written() -> str:
    with simulate("H100") as gpu:
        gpu.set_per_process_memory_fraction(0.8)
        return f"{_gpu_memory(gpu)}: it is a limit"


def fraction_should() -> str:
    with simulate("H100") as gpu:
        torch.empty(512 << 20, dtype=torch.uint8, device=gpu.device)
        return f"one tensor of 512 MiB, made and dropped: {_gpu_memory(gpu)}"


# --- five strategies ----------------------------------------------------------------------------------------------


def _accumulated(last_too: bool) -> str:
    """Ten micro-batches in groups of four."""
    data, group = TensorDataset(torch.rand(20, 8), torch.randint(4, (20,))), 4
    with simulate("H100") as gpu:
        model, criterion = nn.Linear(8, 4).to(gpu.device), nn.CrossEntropyLoss()
        optimizer, loader = torch.optim.SGD(model.parameters(), lr=0.1), DataLoader(data, batch_size=2)
        steps = waiting = 0
        optimizer.zero_grad()
        for i, (x, y) in enumerate(loader):
            size = min(group, len(loader) - i // group * group) if last_too else group
            (criterion(model(x.to(gpu.device)), y.to(gpu.device)) / size).backward()
            waiting += 1
            if (i + 1) % group == 0 or (last_too and i + 1 == len(loader)):
                optimizer.step()
                optimizer.zero_grad()
                steps, waiting = steps + 1, 0
        left = sum(p.grad is not None for p in model.parameters())
        return (
            f"{counted(len(loader), 'micro-batch')}, {counted(steps, 'step')} of the optimizer; {waiting} left over at the "
            f"end, in the .grad of {left} parameters"
        )


def accumulation_written() -> str:
    return _accumulated(False)


def accumulation_should() -> str:
    return _accumulated(True)


# --- the notes on the book ----------------------------------------------------------------------------------------


def _hooked(*arguments: Any) -> None:
    with simulate("H100").world(2) as gpu:
        model = DistributedDataParallel(nn.Linear(16, 16, device=gpu.device))
        model.register_comm_hook(*arguments)
        model(torch.rand(4, 16, device=gpu.device)).sum().backward()
        gpu.synchronize()


def hook_written() -> str:
    _hooked()
    return "registered"


def hook_should() -> str:
    calls: list[int] = []

    def reduced(bucket: Any) -> Any:
        calls.append(bucket.buffer().numel())
        work: Any = torch.distributed.all_reduce(bucket.buffer(), async_op=True)
        return work.get_future().then(lambda f: f.value()[0])

    _hooked(None, lambda state, bucket: reduced(bucket))
    return f"the hook was called {counted(len(calls), 'time')}, with {calls} numbers"


def _chooses(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x.sum() > 0, x.sin(), x.cos())


def _sizes(dynamic: bool | None) -> str:
    def three() -> None:
        fn = torch.compile(_chooses, dynamic=dynamic)
        for n in (4, 8, 12):
            fn(torch.rand(n))

    return "3 sizes: " + _captured(three)


def dynamic_written() -> str:
    return _sizes(True)


def dynamic_should() -> str:
    return f"the same; dynamic not given: {_sizes(None)}"


# --- all of them --------------------------------------------------------------------------------------------------

SNIPPETS = {
    s.id: s
    for s in (
        snippet("compile-300/network", "3.2.1", "x.view(-1, 16 * 16 * 16)", network_written, network_should, CPU),
        snippet("compile-300/max-autotune", "3.3.2", 'mode="max-autotune"', autotune_written, autotune_should, CPU),
        snippet("compile-300/amp", "4.1.1", "torch.cuda.amp.GradScaler(), autocast()", amp_written, amp_should, SIMULATED),
        snippet("compile-300/memory-fraction", "4.2.2", "torch.cuda.set_per_process_memory_fraction(0.8)", fraction_written, fraction_should, SIMULATED),
        snippet("five-strategies/accumulation", "3.1", "if (i+1) % accumulation_steps == 0", accumulation_written, accumulation_should, SIMULATED),
        snippet("book-notes/comm-hook", "distributed", "register_comm_hook()", hook_written, hook_should, SIMULATED),
        snippet("book-notes/dynamic", "graphs", "dynamic=True", dynamic_written, dynamic_should, CPU),
    )
}  # fmt: skip


def outcome(id: str) -> tuple[str, str]:
    """Run one: what happened as written, and as it should be, without where it was run."""
    lines = SNIPPETS[id].as_written(), SNIPPETS[id].as_it_should()
    written, should = (re.sub(r"^on the [\w ]+: ", "", line).replace("runs; ", "") for line in lines)
    return written, should
