"""What every lesson says and keeps: its set-up line, predictions, verdicts on the sources, and progress."""

import json
import math
import os
import platform
import re
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from helpers.earlier import watch_names
from helpers.tables import Table, table

__all__ = [
    "SOURCES", "Table", "compare_predictions", "compare_ratios", "keep", "on_gpu", "progress", "record", "spelled", "start", "table", "verdicts",
]  # fmt: skip

#: the documents whose claims the course tests: key → their titles, in English too, and authors
SOURCES = tomllib.loads(Path(__file__).with_name("sources.toml").read_text(encoding="utf-8"))
VERDICTS = ("confirmed", "holds when", "refuted", "untested")
#: what a claim on trial consists of, in the order of a row
CLAIM = ("id", "source", "claim", "measured", "verdict", "experiment")
VERDICTS_MIME = "application/vnd.pytorch-performance.verdicts+json"
KEPT_MIME = "application/vnd.pytorch-performance.kept+json"

_INDEX = Path(__file__).with_name("lessons.json")
_current: str | None = None


def start(name: str, evidence: Sequence[str]) -> None:
    """Begin a lesson: print what this machine is and which evidence the lesson will show.

    name: the lesson's folder, e.g. ``"01_storage_and_stride"``. evidence: labels such as ``"live (CPU)"``.
    """
    global _current
    _check_python()
    # the profiler's library writes time-stamped lines of its own into the notebook otherwise
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    import torch

    _current = name
    watch_names(name)
    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "none (and none needed)"
    version, python = torch.__version__.partition("+")[0], ".".join(platform.python_version_tuple()[:2])
    print(f"torch {version} · Python {python} · CPU threads: {torch.get_num_threads()} · GPU: {gpu}")
    print("evidence in this lesson: " + " · ".join(evidence))


def current() -> str | None:
    """The lesson that was begun last in this kernel, by its folder's name."""
    return _current


def _check_python() -> None:
    if missing := [name for name in ("torch", "numpy", "matplotlib") if find_spec(name) is None]:
        raise ModuleNotFoundError(
            f"this kernel's Python ({sys.executable}) has no {', '.join(missing)}. The course runs in its own environment: "
            "start it with `make lab`, then choose Kernel > Change Kernel… > Python 3 (ipykernel)."
        )


def spelled(answer: Any) -> Any:
    """Words that mean the same alike: capitals, outer spaces, 1.0x for 1.0×, True for "yes". Numbers stay numbers."""
    if isinstance(answer, bool):
        return "yes" if answer else "no"
    return answer.strip().casefold().replace("×", "x") if isinstance(answer, str) else answer


def _word(answer: Any) -> str:
    word = str(spelled(answer))
    try:
        return f"{float(word):g}"  # "1", 1 and 1.0 are one answer
    except ValueError:
        return word


#: words or numbers that may be answered, or a range of numbers
Choices = Sequence[Any]


def compare_predictions(
    prediction: Mapping[str, Any],
    measured: Mapping[str, Any],
    *,
    evidence: str,
    what: str = "measured",
    choices: Choices | Mapping[str, Choices] = (),
) -> Table:
    """Beside each measured value: what the learner said, ✓ or ✗. An answer left as ``...`` shows as not yet given.

    choices: what may be answered; another answer is asked back, and none counts as wrong for being another word. Of
        a sequence the words are for lines that measured a word, the rest for the others; ``range(0, 9)``: any number
        from 0 to 8. Where lines have answers of their own: a mapping from line to them. A line without any takes all.
    """
    rows, right, given = [], 0, 0
    for key, value in measured.items():
        said, offered = prediction.get(key, ...), _choices(choices, key, value)
        if offered and os.environ.get("COURSE_BUILD") and not _offers(offered, value):
            raise ValueError(f"measured {value!r} for {key!r}, which nobody can answer: {_asked(offered)}")
        if said is ...:
            mark = "—"
        elif offered and not _offers(offered, said):
            mark = f"{said}: {_asked(offered)}?"
        else:
            given += 1
            right += _word(said) == _word(value)
            mark = f"{said} " + ("✓" if _word(said) == _word(value) else "✗")
        rows.append((key, str(value), mark))
    caption = (
        f"{right} of {given} predicted right"
        if given
        else "predict first, then measure: fill in the cell above and run both again"
    )
    return table(rows, ["expression", what, "you said"], evidence=evidence, caption=caption)


def compare_ratios(
    prediction: Mapping[str, Any],
    ratios: Mapping[str, float],
    *,
    choices: Sequence[float],
    evidence: str,
    what: str,
    shown: str = "{:.2f}",
) -> Table:
    """compare_predictions against the nearest of the choices, with the ratio itself beside it, in the form `shown`."""

    def nearest(ratio: float) -> float:
        return min(choices, key=lambda n: abs(math.log(ratio / n)))

    near = {name: nearest(ratio) for name, ratio in ratios.items()}
    said = compare_predictions(prediction, near, evidence=evidence, choices=choices)
    rows = [(*row, shown.format(r)) for row, r in zip(said.rows, ratios.values(), strict=True)]
    return table(
        rows, ["", f"{what}, about", "you said", "measured"], evidence=evidence, caption=said.caption
    )


def _choices(choices: Choices | Mapping[str, Choices], key: str, value: Any) -> Choices:
    if isinstance(choices, Mapping):
        return choices.get(key, ())
    if isinstance(choices, range):
        return () if isinstance(value, str | bool) else choices
    return [c for c in choices if isinstance(c, str) == isinstance(value, str | bool)]


def _offers(offered: Choices, said: Any) -> bool:
    if not isinstance(offered, range):
        return _word(said) in map(_word, offered)
    try:
        return offered.start <= float(said) <= offered.stop - 1
    except (TypeError, ValueError):
        return False


def _asked(offered: Choices) -> str:
    if isinstance(offered, range):
        return f"a number from {offered.start} to {offered.stop - 1}"
    return f"one of {', '.join(map(str, offered))}"


def verdicts(claims: Sequence[Mapping[str, str] | Sequence[str]], *, evidence: str) -> "VerdictTable":
    """The lesson's sources on trial: a table to read, and the same as data for the last lesson.

    Each claim, a mapping or a row: ``id``, ``source`` (a key of :data:`SOURCES`), ``claim``, ``measured``, ``verdict``
    (begins with confirmed / holds when / refuted / untested), ``experiment`` (the heading where it was run).
    """
    told = [dict(c if isinstance(c, Mapping) else zip(CLAIM, c, strict=True)) for c in claims]
    for claim in told:
        if lacking := set(CLAIM) - set(claim):
            raise ValueError(f"claim {claim.get('id', claim)!r} lacks {sorted(lacking)}")
        name, source, verdict = f"claim {claim['id']!r}", claim["source"], claim["verdict"]
        if source not in SOURCES:
            raise ValueError(f"{name}: no source {source!r}; there are {sorted(SOURCES)}")
        if not verdict.startswith(VERDICTS):
            raise ValueError(f"{name}: a verdict begins with one of {VERDICTS}, not {verdict!r}")
    return VerdictTable(told, evidence)


class VerdictTable:
    """Shows as a table; carries its claims as JSON in the notebook's output."""

    def __init__(self, claims: list[dict[str, str]], evidence: str) -> None:
        self.claims = claims
        shown = [
            c
            | {"source": SOURCES[c["source"]]["english"], "measured here": c["measured"]}
            | {"verdict": re.sub("^holds when", "partly: holds when", c["verdict"])}
            for c in claims
        ]
        columns = ["claim", "source", "measured here", "verdict", "experiment"]
        self.table = table(shown, columns, evidence=evidence)

    def __repr__(self) -> str:
        return repr(self.table)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return {
            "text/plain": repr(self.table),
            "text/html": self.table._repr_html_(),
            VERDICTS_MIME: {"lesson": _current, "claims": self.claims},
        }


def keep(**values: Any) -> None:
    """Keep numbers and words for the text, under a name each; shows nothing. Where the master's text says
    ``{{step_ms:.1f}}``, the build writes what ``keep(step_ms=…)`` was given.

    Numbers are kept to nine digits. Round one yourself whose last digits another processor computes otherwise. What a clock gave
    belongs in no text: a word with "≈" raises ValueError, as does what is neither a number nor a word.
    """
    plain = {name: value.item() if hasattr(value, "item") else value for name, value in values.items()}
    for name, value in plain.items():
        if not isinstance(value, int | float | str) or "≈" in str(value):
            raise ValueError(
                f"keep({name}=…) takes a number or a word that is the same on every run, not {value!r}"
            )
        if isinstance(value, float):
            plain[name] = float(f"{value:.9g}")
    if os.environ.get("COURSE_BUILD"):
        from IPython.display import display

        display({KEPT_MIME: plain}, raw=True)


def on_gpu(experiment: Callable[[Any], Any], recording: str) -> Any:
    """Run ``experiment(device)`` live where there is a GPU; else show its recording; else say that there is none yet."""
    import torch

    if torch.cuda.is_available():
        print("live (GPU): " + torch.cuda.get_device_name(0))
        return experiment(torch.device("cuda"))
    from helpers import recordings

    found = recordings.load(recording)
    if found is None:
        print(
            f"no GPU here, and no recording of {recording!r} yet. This cell runs live where there is a GPU."
        )
    return found


# --- progress -----------------------------------------------------------------------------------------------------


def _progress_file() -> Path:
    """One small file a user: beside the course's own state, never inside a notebook folder that is handed in."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "pytorch-performance-measured" / "progress.json"


def _read_progress() -> dict[str, dict[str, bool]]:
    if os.environ.get("COURSE_BUILD"):  # a reference shows a lesson that nobody has begun
        return {}
    path = _progress_file()
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return found if isinstance(found, dict) else {}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as problem:
        safe = "starting afresh. Your answers are in the notebooks and are safe."
        print(f"progress: {path} cannot be read ({problem}); {safe}")
        return {}


def record(name: str, passed: bool) -> None:
    """Remember that the visible test of ``name`` passed or failed. Silent while building and grading."""
    grading = os.environ.get("NBGRADER_EXECUTION") == "autograde"
    if _current is None or grading or os.environ.get("COURSE_BUILD"):
        return
    state = _read_progress()
    state.setdefault(_current, {})[name] = passed
    path = _progress_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(f".{os.getpid()}.tmp")
        fresh.write_text(json.dumps(state, indent=1), encoding="utf-8")
        fresh.replace(path)
    except OSError as problem:
        print(f"progress: could not write {path} ({problem}); the test's result above stands.")


def index() -> dict[str, Any]:
    """The lessons as built: name → title, question, minutes, exercises with the names that their tests check."""
    found: dict[str, Any] = json.loads(_INDEX.read_text(encoding="utf-8"))
    return found


def progress(lesson: str | None = None) -> Table:
    """Which exercises pass their visible tests: of one lesson (default: the one that was started), or of all (``"all"``)."""
    lessons, state = index(), _read_progress()
    chosen = lesson or _current
    if chosen and chosen != "all":
        matches = [n for n in lessons if n == chosen or n.startswith(f"{chosen}_")]
        if not matches:
            raise ValueError(f"no lesson {chosen!r}; there are {', '.join(lessons)}")
        chosen = matches[0]
        own, columns = state.get(chosen, {}), ["exercise", "minutes", "visible test"]
        rows = [(e["title"], e["minutes"], _status(e, own)) for e in lessons[chosen]["exercises"]]
        afresh = (
            f"to start this lesson afresh: `make reset LESSON={chosen[:2]}` (your answers are kept in a copy)"
        )
        return table(rows, columns, evidence="your own runs", caption=afresh)
    rows = []
    for name, about in lessons.items():
        done = sum(_status(e, state.get(name, {})) == "passes" for e in about["exercises"])
        total = len(about["exercises"])
        rows.append((about["title"], f"{done} of {total}", "█" * done + "░" * (total - done)))
    caption = "an exercise counts when its visible test passes"
    return table(rows, ["lesson", "solved", ""], evidence="your own runs", caption=caption)


def _status(exercise: Mapping[str, Any], state: Mapping[str, bool]) -> str:
    results = [state.get(n) for n in exercise["checks"]]
    if results and all(results):
        return "passes"
    return "fails" if False in results else "not run yet"
