"""Predictions: what a lesson offers as an answer counts as given, whatever was measured."""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from helpers import lesson
from helpers.classroom import build
from helpers.classroom import master as masters

COMPARES = {"compare_predictions", "compare_ratios"}


@dataclass
class Prediction:
    where: str
    prompt: dict[str, Any]
    #: the words in quotes beside each line of the prompt; "": those beside its name
    words: dict[str, list[str]]
    choices: Any


def predictions(name: str) -> Iterator[Prediction]:
    """Of a lesson: each comparison with its prompt, a dict of dots in a cell above, and its choices, as far as they are literal."""
    master = masters.read(build.find([name])[0])
    known: dict[str, Any] = {"range": range, "list": list, "dict": dict, "zip": zip}
    words: dict[str, dict[str, list[str]]] = {}
    for cell in (c for c in master.cells if c.kind in ("setup", "experiment")):
        for statement in ast.parse(cell.source).body:
            if isinstance(statement, ast.Assign) and isinstance(target := statement.targets[0], ast.Name):
                try:
                    known[target.id] = eval(ast.unparse(statement.value), dict(known))
                except Exception:
                    known.pop(target.id, None)
                else:
                    lines = cell.source.splitlines()[statement.lineno - 1 : statement.end_lineno]
                    words[target.id] = offered(lines, known[target.id])
            if isinstance(statement, ast.FunctionDef):
                continue
            for call in (n for n in ast.walk(statement) if isinstance(n, ast.Call)):
                if ast.unparse(call.func).removeprefix("lesson.") in COMPARES:
                    given = [k.value for k in call.keywords if k.arg == "choices"]
                    prompt = eval(ast.unparse(call.args[0]), dict(known))
                    try:
                        choices = eval(ast.unparse(given[0]), dict(known)) if given else ()
                    except NameError:  # not to be read off the text: nobody knows what is offered
                        choices = ()
                    name_of = next(
                        n.id for n in ast.walk(call.args[0]) if isinstance(n, ast.Name) and n.id in words
                    )
                    yield Prediction(master.where(cell), prompt, words[name_of], choices)


def offered(lines: list[str], prompt: Any) -> dict[str, list[str]]:
    found = {}
    for line in lines if isinstance(prompt, Mapping) else ():
        code, _, comment = line.partition("  # ")
        key = (
            next((k for k in prompt if isinstance(k, str) and f'"{k}"' in code), "") if len(lines) > 1 else ""
        )
        found[key] = re.findall(r'"([^"]+)"', comment)
    return found


@pytest.mark.parametrize("name", [path.stem for path in build.find([])])
def test_each_answer_that_is_offered_is_counted_as_given(name: str) -> None:
    for p in predictions(name):
        dots = p.prompt and all(said is ... for said in p.prompt.values())
        assert dots, f"{p.where}: no prompt of dots in a cell above"
        for key in map(str, p.prompt):
            offers = p.choices.get(key, ()) if isinstance(p.choices, Mapping) else p.choices
            assert offers, f"{p.where}: {key!r} has no choices= of words, numbers or a range"
            answers = (
                [offers[0], offers[len(offers) // 2], offers[-1]] if isinstance(offers, range) else offers
            )
            for answer in answers:
                measured = next(
                    (other for other in answers if type(other) is type(answer) and other != answer), answer
                )
                shown = lesson.compare_predictions(
                    {key: answer}, {key: measured}, evidence="arithmetic", choices=p.choices
                )
                assert shown.rows[0][2][-1] in "✓✗", f"{p.where}: {key!r}: {shown.rows[0][2]}"
            for word in [*p.words.get(key, ()), *p.words.get("", ())]:
                every = [*p.choices.values()] if isinstance(p.choices, Mapping) else [offers]
                assert any(word in map(str, some) for some in every), (
                    f"{p.where}: the prompt offers {word!r}, choices= does not"
                )
