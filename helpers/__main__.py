"""The course's verdict and picture for a file of your own, from anybody's GPU:

    python -m helpers trace.json.gz        what limits the run, and who waits for whom  (torch.profiler)
    python -m helpers snapshot.pickle      the peak and the lines that held it          (torch.cuda.memory)
    python -m helpers run train.py         where its steps' time goes on a GPU, line by line, without one; run --help
    python -m helpers report               what you did in the course, as a page; report --help says more

The picture is written to the folder that you are in, as trace-picture.png or snapshot-picture.png. Nothing in the file
is run.
"""

import argparse
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from helpers.text.evidence import recorded
from helpers.text.terminal import lenient

if TYPE_CHECKING:
    from helpers.plots import Picture
    from helpers.trace import Trace

#: endings of memory snapshots; all else is read as a trace
SNAPSHOTS = (".pickle", ".pkl", ".pickle.gz", ".pkl.gz")
#: what is no part of a recording's own name: two of one process differ before it, `host_pid.time.pt.trace.json.gz`
_ENDINGS = re.compile(r"(\.pt)?(\.trace)?(\.json|\.pickle|\.pkl|\.csv|\.sqlite)?(\.gz)?$", re.IGNORECASE)


def show(path: Path, out: Path | None = None, evidence: str | None = None) -> Path:
    """Print what is said of the file, draw it to ``out`` (.png), and return where. ValueError, or
    FileNotFoundError, with the reader's own words for what cannot be read; FileExistsError where ``out`` would be
    ``path`` itself.
    """
    from helpers import memory, plots, trace

    if not path.exists():
        raise FileNotFoundError(f"no file at {path}: check the path")
    out = out or Path(f"{_ENDINGS.sub('', path.name) or path.name}-picture.png")
    if out.resolve() == path.resolve():
        raise FileExistsError(f"{out} is the file to be read: name another with --out")
    if path.name.lower().endswith(SNAPSHOTS):
        snapshot = memory.read(path, evidence=evidence)
        print(memory.peak(snapshot))
        print(f"at the end: {memory.fragmentation(snapshot)}")
        picture = plots.memory_timeline(snapshot)
    else:
        read = trace.read(path, evidence)
        if not evidence and read.evidence.startswith("live"):  # it was, elsewhere or once
            cards = [*filter(None, read.devices), "GPU not named"]
            read = replace(read, evidence=recorded(cards[0] if read.has_gpu else "CPU", read.began))
        picture = trace_shown(read)
    return picture.save(out)


def trace_shown(read: "Trace") -> "Picture":
    """Print what limits a trace and what took longest; its picture: who waits for whom, or, without a GPU, what ran."""
    from helpers import plots, trace

    print(trace.classify(read))
    print(trace.top(read, 5, by="device" if read.has_gpu else "host"))
    return plots.queue(read) if read.has_gpu else plots.zoom(read)


def main(argv: Sequence[str] | None = None) -> int:
    """0; 2 for a file that cannot be read, with why on stderr."""
    lenient()
    try:
        code = _main(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # whoever reads, as `| head`, has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _main(words: Sequence[str]) -> int:
    if words[:1] == ["report"]:
        from helpers.lesson import report_page as report

        return report.main(words[1:])
    if words[:1] == ["run"]:
        from helpers.own_script import command

        return command.main(words[1:])
    parser = argparse.ArgumentParser(
        prog="python -m helpers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, help="a trace (.json, .json.gz) or a memory snapshot (.pickle)")
    parser.add_argument("--out", type=Path, help="where to draw: a .png")
    parser.add_argument(
        "--evidence", help='what stands on the picture, for instance "recorded (A100, 2026-05)"'
    )
    given = parser.parse_args(words)
    try:
        drawn = show(given.file, given.out, given.evidence)
        # a name's odd bytes are no text, and cannot be printed
        print(f"drawn: {os.fsencode(drawn).decode(errors='replace')}")
    except BrokenPipeError:
        raise
    except (ValueError, OSError) as problem:
        print(problem, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
