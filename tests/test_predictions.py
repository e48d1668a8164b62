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
from helpers.predictions import Prediction

COMPARES = {"compare_predictions", "compare_ratios"}
#: more buttons than this are no choice but a guess
MOST = 7


@dataclass
class Compared:
    where: str
    prompt: dict[str, Any]
    #: the words in quotes beside each line of the prompt; "": those beside its name
    words: dict[str, list[str]]
    choices: Any


def predictions(name: str) -> Iterator[Compared]:
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
                    yield Compared(master.where(cell), prompt, words[name_of], choices)


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


def asked(name: str) -> Iterator[tuple[str, str, dict[str, Any], Any]]:
    """Of a lesson: each `name = lesson.predict(questions, choices=…)`: where, the name, questions, choices. Literals all."""
    master = masters.read(build.find([name])[0])
    known: dict[str, Any] = {"range": range, "list": list, "dict": dict}
    for cell in (c for c in master.cells if c.kind in ("setup", "experiment")):
        for statement in ast.parse(cell.source).body:
            if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
                continue
            target, call = statement.targets[0].id, statement.value
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "lesson.predict":
                given = {k.arg: k.value for k in call.keywords}
                if len(call.args) > 1:
                    given["choices"] = call.args[1]
                questions, choices = (
                    eval(ast.unparse(part), dict(known)) for part in (call.args[0], given["choices"])
                )
                yield master.where(cell), target, questions, choices
                assert f"{target}.against" in "".join(
                    c.source for c in master.cells[cell_of(master, cell) :]
                ), f"{master.where(cell)}: {target} is never held against a measurement"
            else:
                try:
                    known[target] = eval(ast.unparse(call), dict(known))
                except Exception:
                    known.pop(target, None)


def cell_of(master: masters.Master, cell: Any) -> int:
    return next(i for i, c in enumerate(master.cells) if c is cell)


@pytest.mark.parametrize("name", [path.stem for path in build.find([])])
def test_each_choice_of_each_question_is_an_answer(name: str) -> None:
    seen: dict[str, str] = {}
    for where, _, questions, choices in asked(name):
        for question, said in questions.items():
            assert said is ..., f"{where}: {question!r} is answered already"
            assert question not in seen, f"{where}: {question!r} is asked at {seen[question]} too"
            seen[question] = where
        prediction = Prediction(questions, choices)
        for question, offers in prediction.offered.items():
            assert len(offers) <= MOST, f"{where}: {question!r} has {len(offers)} choices, more than {MOST}"
            for answer in offers:
                for measured in offers:
                    said = Prediction({question: answer}, {question: offers})
                    mark = said.against({question: measured}, evidence="arithmetic").table().rows[0][2]
                    assert mark == f"{answer} {'✓' if answer == measured else '✗'}", (
                        f"{where}: {question!r}: {mark}"
                    )
