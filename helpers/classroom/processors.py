"""The same output on every processor: a lesson runs once more with plain instructions, and what differs is refused.

A sum depends on its order, and the order on the width of the processor's vectors. So the last digits of what a CPU computes
differ between processors. A reference must not hold them: nbval would find another output on the next machine.
"""

import configparser
import json
import os
import re
from collections import defaultdict
from functools import cache

from nbformat import NotebookNode

from helpers.classroom.master import BadMaster, Master
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


def compare(nb: NotebookNode, plain: NotebookNode, master: Master) -> None:
    """Refuse an output of ``nb`` that ``plain``, the same notebook run with `PLAIN`, has otherwise.

    Raises :class:`BadMaster` with the master's line and both outputs where they part. Cells that nbval does not compare are
    passed over.
    """
    for one, other, cell in zip(nb.cells, plain.cells, master.cells, strict=True):
        if "nbval-ignore-output" in cell.tags:
            continue
        here, there = shown(one), shown(other)
        for kind in sorted(here | there):
            text, again = here.get(kind, ""), there.get(kind, "")
            if text != again:
                begin = max(len(os.path.commonprefix([text, again])) - AROUND, 0)
                raise BadMaster(
                    f"{master.where(cell)}: {kind} of this {cell.kind} cell depends on the processor, or on a clock: it is\n"
                    f"  {text[begin : begin + 2 * AROUND]!r}, and with plain instructions\n"
                    f"  {again[begin : begin + 2 * AROUND]!r}. Round it more coarsely, or say what holds on each"
                )
