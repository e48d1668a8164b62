"""Predictions: what a lesson offers as an answer counts as given, whatever was measured."""

import ast
from collections.abc import Iterator
from typing import Any

import pytest

from helpers.classroom import build
from helpers.classroom import master as masters
from helpers.lesson.predictions import Prediction

#: more buttons than this are no choice but a guess
MOST = 7


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
    assert len(seen) >= 3, f"{name}: {len(seen)} questions; a learner predicts before measuring"


@pytest.mark.parametrize(
    ("evidence", "head"),
    [
        ("live (CPU)", "measured"),
        ("simulated (H100)", "simulated"),
        ("arithmetic", "computed"),
        ("live (CPU) · arithmetic", "result"),
    ],
)
def test_no_number_is_called_measured_that_was_not(evidence: str, head: str) -> None:
    said = Prediction({"which?": ...}, ["a", "b"])
    assert said.against({"which?": "a"}, evidence=evidence).table().columns[1] == head
