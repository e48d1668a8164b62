"""Every code snippet of the four sources, run as it is written and as it should be written, with what happened.

    from helpers.lessons.sources_on_trial import snippets

    snippets.ran()        # rows: (id, source, section, what, what happened as written, what happened as it should be)

A snippet is a listing, or a call, setting or class that a sentence names to be typed. A listing that makes two calls on
trial is two. What stands in a sentence is typed as it stands there, empty parentheses too. Each is run in a minimal form: the source's calls and arguments, our names and data. The same on every
machine: what asks for a GPU runs on the simulated one, or on the CPU where the compiler or a library is needed, and the
result says on which. As data they are `SNIPPETS`. By source and section, `n` the number of its snippets:

guide, 4            1 jit.script · 2 cudagraphs · 3 autocast · 5 set_num_threads
compile-300, 28     2.1 three steps · 2.2.1 before, after fusion · 2.2.2 layout · 2.2.3 TensorRT, dynamic · 3.1.1 install ·
                    3.1.2 check · 3.2.1 network · 3.2.2 compile · 3.2.3 train · 3.3.1 Inductor, TensorRT · 3.3.2 two modes ·
                    4.1.1 AMP · 4.1.2 half layers · 4.2.1 PoolAllocator · 4.2.2 memory fraction · 4.3.1 negative size ·
                    4.3.2 shapes · 5.1.1, 5.1.2 BERT · 5.2 Stable Diffusion, load and compile · 6.1.1 utilization,
                    memory_allocated, Event · 6.2.1 profiler
five-strategies, 8  1.2 AMP · 2.1 profiler · 3.1 accumulation · 4.2 DDP · 5.1 workers · 5.2 ImageFolder, DataLoader ·
                    7 FusedAdam
book-notes, 8       data: wait_stream · optimizers: three implementations · memory: max_split_size_mb · distributed:
                    register_comm_hook · mixed precision: autocast, GradScaler · graphs: fullgraph, dynamic, mode
"""

from __future__ import annotations

import re

from helpers.lessons.sources_on_trial.snippets import (
    book_notes,
    compile_300,
    compile_300_models,
    five_strategies,
    guide,
)
from helpers.lessons.sources_on_trial.snippets.running import NOT_RUN, NotRun, Snippet

__all__ = ["COLUMNS", "LITERALLY", "NOT_RUN", "SNIPPETS", "NotRun", "Row", "Snippet", "fails", "ran", "said"]

#: id, source, section, what, what happened as written, what happened as it should be
Row = tuple[str, str, str, str, str, str]
COLUMNS = ("id", "source", "section", "what", "as written", "as it should be")

SNIPPETS: tuple[Snippet, ...] = (
    *guide.SNIPPETS,
    *compile_300.SNIPPETS,
    *compile_300_models.SNIPPETS,
    *five_strategies.SNIPPETS,
    *book_notes.SNIPPETS,
)
#: errors that come of typing a sentence, or an abridged listing, as it stands: id → what its reader would fill in
LITERALLY = {
    "guide/autocast": "the listing leaves the body of the block to the reader",
    "guide/threads": "a sentence names the function, without its argument",
    "compile-300/utilization": "the package that it asks is not installed here",
    "compile-300/event": "a sentence names the class, without its argument",
    "five-strategies/ddp": "the script that starts it, torchrun, would set the address",
    "five-strategies/fused-adam": "it is a class of another package, NVIDIA's Apex, named without it",
    "book-notes/wait-stream": "a sentence names two streams that it does not make, one of them with a slip",
    "book-notes/implementations": "these are names of ways, not of arguments",
    "book-notes/max-split-size": "a sentence names the setting, without a value",
    "book-notes/comm-hook": "a sentence names the method, without its arguments",
    "book-notes/amp": "a sentence names the class, without its argument",
    "book-notes/mode": "a slip within the word",
}


def ran(source: str | None = None) -> list[Row]:
    """Run them, or those of one source. About 15 s for all, most of it BERT and Stable Diffusion."""
    return [
        (one.id, one.source, one.section, one.what, one.as_written(), one.as_it_should())
        for one in SNIPPETS
        if source in (None, one.source)
    ]


def said(name: str) -> tuple[str, str]:
    """Run one, by its id: what happened as written, and as it should be, without where it was run."""
    one = next(one for one in SNIPPETS if one.id == name)
    written, should = (re.sub(r"^on the [\w ]+: ", "", run()) for run in (one.as_written, one.as_it_should))
    return written.replace("runs; ", ""), should.replace("runs; ", "")


def fails(happened: str) -> bool:
    """Whether a line of :func:`ran` says that the snippet raised an error."""
    return "runs; " not in happened and not happened.startswith(NOT_RUN)
