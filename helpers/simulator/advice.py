"""A race in words: who, what, and what to add."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Access", "Race", "advice"]


@dataclass(frozen=True)
class Access:
    """One side of a race. stream: its number, None for the host; tensor: e.g. "float32[64, 64]"; line: where
    in the program it was called, as far as known."""

    name: str
    stream: int | None
    tensor: str
    write: bool
    line: str = ""

    @property
    def lane(self) -> str:
        return "the host" if self.stream is None else f"stream {self.stream}"

    def __str__(self) -> str:
        return f"{self.name} on {self.lane}" + (f" ({self.line})" if self.line else "")


@dataclass
class Race:
    """Two accesses to the same memory with nothing that orders them. times: how often this pair was met.

    kind: "read after write", "write after read" or "write after write", in the order of the program; "memory
    reused" where the second owns memory that the first's tensor gave back.
    """

    first: Access
    second: Access
    kind: str
    what: str
    times: int = 1

    def __str__(self) -> str:
        return self.what


def advice(first: Access, second: Access, kind: str, home: int | None = None, note: str = "") -> str:
    """One race in words, with what would order it. home: the stream that reused memory belongs to."""
    return _advice(first, second, kind, home) + note


def _advice(first: Access, second: Access, kind: str, home: int | None) -> str:
    if kind == "memory reused":
        return _reused(first, second, home)
    verb = "writes" if second.write else "reads"
    other = "still be writing" if first.write else "still be reading"
    text = f"race: {second} {verb} {second.tensor} while {first} may {other} it; nothing orders the two. "
    if second.stream is None:
        wait = "record an event in that stream after the copy and call event.synchronize()"
        if first.write:
            return text + (
                f"The copy to the host is asynchronous: {wait} (or stream.synchronize()) before you read it."
            )
        return text + (
            f"The copy engine reads the pinned buffer later than the call: {wait} before you write it "
            "again, or take turns with a second buffer."
        )
    if first.stream is None:
        return text + "Let the host finish before the launch."
    if first.name.startswith("dist."):
        return (
            text
            + "A collective was called with async_op=True: call wait() on the Work that it returned first."
        )
    return text + (
        f"Let {second.lane} wait for {first.lane} before this (wait_stream), or record an event after "
        f"{first.name} and let {second.lane} wait for it."
    )


def _reused(first: Access, second: Access, home: int | None) -> str:
    text = (
        f"race: {second} uses memory ({second.tensor}) that the allocator took from a tensor ({first.tensor}) "
        f"which {first} may still be using; nothing orders the two. "
    )
    wait = f"let {second.lane} wait for {first.lane} first (wait_stream)"
    if first.stream == home:  # in its own stream the allocator hands memory on at once: order keeps that safe
        return (
            text
            + f"New memory of {first.lane} is only safe in {first.lane}, after what is queued there: {wait}."
        )
    return text + (
        f"The tensor was dropped while {first.lane} still worked on it. Call tensor.record_stream(stream) with "
        f"{first.lane} before you drop it, or {wait}."
    )
