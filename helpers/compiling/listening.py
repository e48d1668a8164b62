"""Hear the structured trace: what the compiler says of its work, event by event, for as long as a block runs."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

#: the logger that torch/_logging/_internal.py calls trace_log; TORCH_TRACE and tlparse read it too
TRACE = "torch.__trace"

#: what Dynamo says on standard error, with the time and the paths of the machine, and the report says too
_SAID_TOO = {
    "torch._dynamo.convert_frame": "torch._dynamo hit config.",
    "torch._dynamo.variables.tensor": "Graph break from `Tensor.item()`",
}


@dataclass(frozen=True)
class Event:
    """One entry of the trace.

    kind: its name, e.g. ``dynamo_output_graph``; an artifact has its own (``recompile_reasons``).
    id: the compile id as torch writes it, ``frame/compilation``, e.g. ``"0/1"``; "" where there is none.
    attempt: Dynamo starts over when it meets a graph break; this counts the starts.
    """

    kind: str
    id: str
    attempt: int
    data: dict[str, Any]
    text: str


class _Ear(logging.Handler):
    def __init__(self, events: list[Event]) -> None:
        super().__init__(logging.DEBUG)
        self.events = events

    def emit(self, record: logging.LogRecord) -> None:
        metadata = getattr(record, "metadata", None)
        if not isinstance(metadata, dict) or "chromium_event" in metadata:
            return  # a mark on a timeline: no news
        frame, compilation = metadata.get("frame_id"), metadata.get("frame_compile_id")
        place = "" if frame is None or compilation is None else f"{frame}/{compilation}"
        for kind, data in metadata.items():
            if kind in _WANTED or kind == "artifact":
                data = data if isinstance(data, dict) else {}
                kind = str(data.get("name", "")) if kind == "artifact" else kind
                if kind in _WANTED:
                    text = _text(getattr(record, "payload", None))
                    self.events.append(Event(kind, place, metadata.get("attempt") or 0, data, text))


_WANTED = {
    "dynamo_start", "dynamo_output_graph", "dynamo_cpp_guards_str", "dynamo_graph_break_reason", "recompile_reasons",
    "inductor_output_code", "compilation_metrics",
}  # fmt: skip


def _text(payload: Any) -> str:
    return payload if isinstance(payload, str) else "" if payload is None else json.dumps(payload)


class _SaidToo(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return not record.getMessage().lstrip().startswith(_SAID_TOO.get(record.name, "\0"))


@contextmanager
def listen() -> Iterator[list[Event]]:
    """The list given fills while the block runs. A TORCH_TRACE of the reader's own goes on as it would."""
    events: list[Event] = []
    ear, trace = _Ear(events), logging.getLogger(TRACE)
    silence = _SaidToo()
    level, filters, disabled = trace.level, trace.filters, trace.disabled
    trace.filters, trace.disabled = [], False  # one that changes what is told would change what is counted
    trace.addHandler(ear)
    trace.setLevel(logging.DEBUG)
    for name in _SAID_TOO:
        logging.getLogger(name).addFilter(silence)
    try:
        yield events
    finally:
        trace.removeHandler(ear)
        trace.setLevel(level)
        trace.filters, trace.disabled = filters, disabled
        for name in _SAID_TOO:
            logging.getLogger(name).removeFilter(silence)
