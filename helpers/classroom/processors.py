"""The same output on every processor: a lesson runs once more with plain instructions, and what differs is refused.

A sum depends on its order, and the order on the width of the processor's vectors. So the last digits of what a CPU computes
differ between processors. A reference must not hold them: nbval would find another output on the next machine.
"""

import configparser
import json
import os
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache

from nbformat import NotebookNode

from helpers.classroom.master import BadMaster, Cell, Master
from helpers.classroom.settings import ROOT

#: of a kernel: PyTorch's own kernels without vectors wider than every processor has, oneDNN's with SSE 4.1
PLAIN = {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41"}
#: what makes oneDNN's products of bytes wrong where the processor itself has VNNI: PyTorch asks the processor, not this
#: limit, whether they are exact (https://github.com/pytorch/pytorch/pull/136942)
_NOT_FOR_BYTES = "ONEDNN_MAX_CPU_ISA"
#: characters shown on each side of the first difference
AROUND = 60


def plain(master: Master) -> dict[str, str]:
    """`PLAIN`, as far as a lesson's operators are right under it."""
    bytes_multiplied = any("_int_mm" in cell.source for cell in master.cells)
    return {k: v for k, v in PLAIN.items() if not (bytes_multiplied and k == _NOT_FOR_BYTES)}


@cache
def _clocks() -> list[tuple[re.Pattern[str], str]]:
    """What nbval blanks before it compares, and what it puts there."""
    config = configparser.RawConfigParser()
    config.read(ROOT / "etc" / "nbval.cfg", encoding="utf-8")
    return [(re.compile(config[name]["regex"]), config[name]["replace"]) for name in config.sections()]


def shown(node: NotebookNode) -> dict[str, str]:
    """Stream or MIME type → what a cell shows there, pictures left out and clocks blanked."""
    parts = defaultdict[str, list[str]](list)
    for output in node.get("outputs", ()):
        if output.output_type == "stream":
            parts[output.name].append(output.text)
        for kind, value in output.get("data", {}).items():
            if not kind.startswith("image/"):
                parts[kind].append(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    shown = {kind: "".join(texts) for kind, texts in parts.items()}
    for regex, word in _clocks():
        shown = {kind: regex.sub(word, text) for kind, text in shown.items()}
    return shown


def differing(one: NotebookNode, other: NotebookNode, master: Master) -> Iterator[tuple[Cell, str, str, str]]:
    """What two runs of a notebook show otherwise: the cell, the stream or MIME type, and both texts.

    Cells that nbval does not compare are passed over.
    """
    for here, there, cell in zip(one.cells, other.cells, master.cells, strict=True):
        if "nbval-ignore-output" not in cell.tags:
            was, now = shown(here), shown(there)
            for kind in sorted(was | now):
                if was.get(kind, "") != now.get(kind, ""):
                    yield cell, kind, was.get(kind, ""), now.get(kind, "")


def apart(was: str, now: str) -> tuple[str, str]:
    """Both texts around their first difference."""
    begin = max(len(os.path.commonprefix([was, now])) - AROUND, 0)
    before, after = (repr(text[begin : begin + 2 * AROUND]) for text in (was, now))
    return before, after


def compare(nb: NotebookNode, plain: NotebookNode, master: Master) -> None:
    """Refuse an output of ``nb`` that ``plain``, the same notebook run with `PLAIN`, has otherwise.

    Raises :class:`BadMaster` with the master's line and both outputs where they part.
    """
    for cell, kind, text, again in differing(nb, plain, master):
        one, other = apart(text, again)
        raise BadMaster(
            f"{master.where(cell)}: {kind} of this {cell.kind} cell depends on the processor, or on a clock: it is\n"
            f"  {one}, and with plain instructions\n  {other}. Round it more coarsely, or say what holds on each"
        )
