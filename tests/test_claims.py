"""The table of claims: every source's list holds together, every trial is run, nothing in it is typed or out of date.

The trials themselves run in the cells of their lessons and of lesson 18, again in tests/test_references.py, whose outputs
have to be the same. Here is read what they came to.
"""

import importlib
import inspect
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from helpers import lessons
from helpers.classroom import build, claims_page, collecting
from helpers.lesson import VERDICTS_MIME, sources
from helpers.lesson.claim import RULES, Claim
from helpers.lessons.sources_on_trial import listing, verdicts

EVERY = listing.every()
GUIDE = Path(__file__).parents[1] / "docs" / "adding-a-source.md"


@pytest.mark.parametrize("source", sources.every())
def test_a_source_is_whole(source: str) -> None:
    assert sources.every()[source].keys() - {"url"} == {"title", "english", "author"}
    listed = listing.listed(source)
    assert listed
    for claim in listed:
        assert sum(map(bool, (claim.kept, claim.trial, claim.why))) == 1, claim
        assert claim.section and claim.says and claim.words, claim
        assert claim.kept or bool(claim.evidence) == bool(claim.trial), (
            f"{claim}: what is measured has its evidence"
        )


def test_every_verdict_that_a_lesson_keeps_is_in_a_list() -> None:
    told = json.loads(verdicts.KEPT.read_text(encoding="utf-8"))
    listed = {name for _, claim in EVERY for name in (claim.kept, *claim.also) if name}
    for name in listed - set(told):
        pytest.fail(f"{name}: no lesson keeps this verdict")
    for name in set(told) - listed:
        pytest.fail(
            f"{name}: add kept(<section>, {name!r}) to the CLAIMS of helpers/lessons/sources_on_trial/sources/{told[name]['source'].replace('-', '_')}.py"
        )
    at_home = {n for source, c in EVERY for n in (c.kept, *c.also) if n and told[n]["source"] == source}
    assert listed == at_home, "under its own source too, where another source says the same"


def test_a_row_that_a_lesson_keeps_has_a_part_of_its_tables_evidence() -> None:
    told = json.loads(verdicts.KEPT.read_text(encoding="utf-8"))
    for _, claim in EVERY:
        if claim.kept and claim.evidence:
            label = told[claim.kept]["evidence"]
            parts = claim.evidence.split(" · ")
            assert set(parts) <= set(re.split(r" · | and ", label)), (
                f"{claim.kept}: {claim.evidence}, but {label}"
            )
            assert claim.evidence != label, f"{claim.kept}: the label is the same"


def test_one_sentence_stands_once_and_has_one_verdict() -> None:
    sentences = [(source, claim.section, claim.says) for source, claim in EVERY]
    assert len(set(sentences)) == len(sentences)
    told = json.loads(verdicts.KEPT.read_text(encoding="utf-8"))
    for (_, claim), row in zip(EVERY, shown(), strict=True):
        if claim.also:
            word = row["verdict"].partition(":")[0]
            others = {name: told[name]["verdict"] for name in claim.also}
            assert all(verdict.startswith(word) for verdict in others.values()), (
                f"{claim.says}: {word}; but {others}"
            )


@pytest.mark.parametrize(
    "verdict", ("partly", "untested", "confirmed for speed", "refuted here", "true", "untested here")
)
def test_a_verdict_is_a_word_and_its_condition(verdict: str) -> None:
    with pytest.raises(ValueError, match="a verdict is one of"):
        Claim("01-a", "guide", "c", "m", verdict, "1")
    Claim("01-a", "guide", "c", "m", "partly: holds when x", "1")


@cache
def shown() -> list[dict[str, Any]]:
    """All claims as the reference of lesson 18 has them, which runs the trials that no other lesson runs."""
    path = build.SOLUTIONS / verdicts.HERE / f"{verdicts.HERE}.ipynb"
    outputs = [o for c in json.loads(path.read_text(encoding="utf-8"))["cells"] for o in c.get("outputs", ())]
    (rows,) = (o["data"][VERDICTS_MIME]["claims"] for o in outputs if VERDICTS_MIME in o.get("data", {}))
    assert len(rows) == len(EVERY)
    return list(rows)


def trials() -> Iterator[tuple[str, set[str]]]:
    """Each trial, and the ids that its text names: the lessons' functions that return a row, and lesson 18's own."""
    for name in lessons.modules("claims"):
        module = importlib.import_module(name)
        for trial, function in inspect.getmembers(module, inspect.isfunction):
            how = inspect.signature(function)
            row = how.return_annotation in ("Claim", "lesson.Claim", Claim)
            # one that takes something gets a lesson's own measurements
            if function.__module__ == name and row and not how.parameters:
                yield (
                    f"{name}.{trial}",
                    set(re.findall(r"[\"'](\d\d-[\w-]+)[\"']", inspect.getsource(function))),
                )
    for source, claim in EVERY:
        if callable(claim.trial):
            yield claim.trial.__name__, {f"18-{source}-{claim.trial.__name__.replace('_', '-')}"}


def test_every_trial_is_run_by_a_lesson_and_reads_no_clock() -> None:
    ran = json.loads(verdicts.KEPT.read_text(encoding="utf-8")) | {row["id"]: row for row in shown()}
    for trial, ids in trials():
        rows = [ran[name] for name in ids if name in ran]
        assert rows, f"{trial}: no lesson shows its row"
        for row in rows:
            assert row["claim"] and (row["measured"] or row["verdict"].startswith("untested")), row
            assert not re.search(r"≈|\b0x[0-9a-f]+|\n", row["measured"]), row


def test_a_claim_takes_a_lessons_verdict_or_says_why_not() -> None:
    row = {"claim": "c", "measured": "m", "verdict": "partly: x", "evidence": "live (CPU)", "lesson": "03_gpu_queue", "experiment": "3 · A map"}  # fmt: skip
    told = {"03-a": row, "02-b": row | {"lesson": "02_operators"}}
    own = verdicts.judged("guide", listing.kept("1", "原文", "in other words", "03-a", "02-b"), told)
    none = verdicts.judged("guide", listing.untested("1", "原文", "c", "no such machine"), {})
    assert (own.says, own.claim, own.word, own.lesson, own.also) == ("原文", "in other words", "partly", "03_gpu_queue", ["02_operators"])  # fmt: skip
    assert (none.word, none.verdict, none.lesson) == ("untested", "untested: no such machine", "")


def _notebook(path: Path, claim: dict[str, str], label: str) -> Path:
    data: dict[str, Any] = {"text/plain": f"claim\nc\n[{label}]", VERDICTS_MIME: {"claims": [claim]}}
    path.write_text(json.dumps({"cells": [{"outputs": [{"data": data}]}]}))
    return path


def test_verdicts_are_collected_once_and_not_from_the_table_itself(tmp_path: Path) -> None:
    row = dict.fromkeys(("source", "claim", "measured", "experiment"), "w") | {
        "id": "01-a",
        "verdict": "partly: holds when x",
    }
    first = _notebook(tmp_path / "01_a.ipynb", row, "simulated (H100); times ±9 %")
    last = _notebook(tmp_path / f"{verdicts.HERE}.ipynb", row, "arithmetic")
    found = collecting.collect([first, last])["01-a"]
    assert (found["lesson"], found["evidence"], found["verdict"]) == ("01_a", "simulated (H100)", "partly: holds when x")  # fmt: skip
    with pytest.raises(ValueError, match="01_a keeps a verdict '01-a' too"):
        collecting.collect([first, _notebook(tmp_path / "02_b.ipynb", row, "arithmetic")])


def test_the_page_of_claims_has_them_all() -> None:
    sayings = ("partly: x", "untested: y", "refuted")
    every = [
        verdicts.Verdict(
            f"03-i{n}", source, "1", "原_文", f"a_b | `c_{n}`", "2 < 3", sayings[n % 3], "live (CPU)", "03_gpu_queue", "3", ["04_data"]
        )
        for n, source in enumerate(sources.every())
    ]  # fmt: skip
    text = claims_page.page(every, {"03_gpu_queue": "03 · The GPU's queue"})
    for n, source in enumerate(sources.every()):
        assert f"a\\_b \\| <code>c\\_{n}</code> (1)<br><sub>原\\_文</sub> | **{every[n].word}**" in text
        assert sources.every()[source]["author"] in text
        assert f"\n### {every[n].word.capitalize()}: {source}\n" in text
    assert "Found: 2 &lt; 3. *live (CPU)*<br>[03](../notebooks/03_gpu_queue/03_gpu_queue.ipynb" in text
    headings = re.findall(r"(?m)^## (\w+)", text)
    assert headings == ["Partly", "Refuted", "Untested"], "untested comes last"
    for word, rule in RULES.items():
        assert f"[{word}](#{word}) | {rule} | " in text


def test_the_page_on_adding_a_source_is_true() -> None:
    """Its listing is a source as the lists above are."""
    (listing,) = re.findall(r"(?ms)^```python\n(.*?)^```", GUIDE.read_text(encoding="utf-8"))
    module: Any = ModuleType("tips")  # in place of a source that is there
    exec(compile(listing, "tips.py", "exec"), module.__dict__)
    told = json.loads(verdicts.KEPT.read_text(encoding="utf-8"))
    words = [verdicts.judged("guide", claim, told).word for claim in module.CLAIMS]
    assert words[0] == "confirmed" and words[2] == "untested"
