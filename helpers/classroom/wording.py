"""A test's verdict, in the words in which a learner reads it after grading.

In a notebook a verdict may say "run this cell again" and name its inputs. After grading there is no cell to run, and
the inputs of hidden tests stay hidden.
"""

import ast
import builtins
import re
from functools import cache

from helpers.check.machine_fault import NOT_YOURS
from helpers.classroom.settings import ROOT, exercises_of

#: what a verdict advises to do in the notebook
_ADVICE = (
    (re.compile(r" Replace `raise NotImplementedError\(\)`.*?run this cell again\."), ""),
    (
        re.compile(r" in this notebook yet\. Run the cell that defines it, then this one\."),
        " in this notebook.",
    ),
    (re.compile(r",? (?:and|then) run this cell again\b"), ""),
)
_OF_THE_MACHINE = "the machine that graded it failed, not this answer; your instructor will look at it"
_LOOK = "look again at: "
_GENERAL = "the result is not what the docstring asks for"
#: values: what stands in quotes, in brackets, or has a digit in it
_VALUES = re.compile(
    # the first: a long text is cut within its quotes
    r"'[^'\n]*…(?=[,;) ]|$)|'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"|\b(?:True|False|None)\b|[-+]?[\w.,]*\d[\w.,%]*(?<![.,])"
)
_BRACKETS = re.compile(r"\([^()\[\]{}]*\)|\[[^()\[\]{}]*\]|\{[^()\[\]{}]*\}")


def plainly(text: str) -> str:
    """A verdict without its mark and without what can only be done in the notebook."""
    text = re.sub(r"^[✗✓] ", "", text.strip(), flags=re.MULTILINE)
    for advice, instead in _ADVICE:
        text = advice.sub(instead, text)
    return text


def discreetly(text: str, lesson: str) -> str:
    """What a failed hidden test of ``lesson`` (its folder's name) said, without inputs, values and what they print.

    Only words that the tests themselves use are let through: an answer can put its inputs into an exception's text, or
    into the name of a class.
    """
    text = plainly(text)
    if NOT_YOURS in text:
        return _OF_THE_MACHINE
    head, *more = text.split("\n")
    own = _strings(lesson)
    # notes and "look again at" stand in the tests as they are; all else that follows is values, or the answer's own
    notes = [line for line in map(str.strip, more) if line.removeprefix(_LOOK) in own]
    return "\n".join([_head(head, lesson), *notes])


def _head(text: str, lesson: str) -> str:
    if "not written yet" in text:
        return "not written yet."
    if re.match(r"there is no '\w+' in this notebook\.|\w+: \d+ of \d+ right\.", text):
        return text
    if re.search(r"(?:^|failed: )its process ended before it answered \(", text):
        return "its process ended before it answered, and again alone in a fresh sandbox"
    if re.search(r"(?:^|failed: )it took more than \d+ s of processor time", text):
        return "it took more processor time than a cell may take"
    if raised := re.search(r": raised (\w+)(?:: | \()", text):
        instead = re.search(r"\), wanted (\w+)$", text)
        wanted = f", where {_error(instead[1])} is asked for" if instead else ""
        return f"it raised {_error(raised[1])}{wanted}"
    if instead := re.search(r": returned .*, wanted (\w+(?:Error|Exception))$", text):
        return f"it returned a value, where {_error(instead[1])} is asked for"
    parts = re.sub(r"; the worst, at .*", "", _masked(text)).split(": ")
    while len(parts) > 1 and _is_about_inputs(parts[0]) and len(_words(": ".join(parts[1:]))) > 2:
        parts = parts[1:]
    masked = ": ".join(parts).replace("….", "…")
    # "the result for … is …, wanted …" says no more than
    if masked.count("…") > 1 and len(_words(masked)) < 7:
        return _GENERAL
    return masked if len(_words(masked)) > 2 and _words(masked) <= _vocabulary(lesson) else _GENERAL


def _is_about_inputs(part: str) -> bool:
    """Whether this part of a sentence is the call or names the case, rather than saying what is wrong."""
    return "=" in part or re.fullmatch(r"\w+…?", part) is not None or 2 * part.count("…") >= len(_words(part))


def _error(name: str) -> str:
    known = getattr(builtins, name, None)
    return name if isinstance(known, type) and issubclass(known, BaseException) else "an error"


def _masked(text: str) -> str:
    """The text with … in place of values."""
    before = ""
    text = _VALUES.sub("…", text.replace("(s)", "s"))
    while before != text:
        before, text = text, _BRACKETS.sub("…", text)
    return re.sub(r"…(?:[\s,;×·/]*…)+", "…", text)


def _words(text: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[^\W\d_]+", text)}


@cache
def _strings(lesson: str) -> frozenset[str]:
    """The strings in the checks and in the lesson's tests, as they are handed out, and the names of the checks."""
    paths = [*(ROOT / "helpers" / "check").glob("*.py"), exercises_of(lesson)]
    texts = [path.read_text(encoding="utf-8") for path in paths if path.exists()]
    nodes = [node for text in texts for node in ast.walk(ast.parse(text))]
    names = {
        node.name for node in nodes if isinstance(node, ast.FunctionDef) and node.name.startswith("check_")
    }
    return frozenset(
        names | {n.value.strip() for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    )


@cache
def _vocabulary(lesson: str) -> frozenset[str]:
    return frozenset(word for string in _strings(lesson) for word in _words(string))
