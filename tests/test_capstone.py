"""The capstone's script: a seed's is slow, reads as clean code and learns what the fast text learns; repairs earn what they should.

tests/long/capstone.py does the same for ten seeds and for every fault.
"""

from __future__ import annotations

import codeop
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch

from helpers import progress
from helpers.check import variant
from helpers.classroom import bundle
from helpers.classroom import master as masters
from helpers.classroom.build import find
from helpers.lessons import capstone
from helpers.lessons.capstone import alone, build, catalogue, given, scores
from helpers.lessons.capstone.catalogue import FAULTS, Fault
from helpers.lessons.capstone.parts import PARTS, WHOLE, Script

SEEDS = ("", "spring", "autumn", *map(str, range(7)))
#: places of which a fault raises one graded counter of its area, and no other fault of that area raises it
ALONE = ("read", "width", "workers", "send", "augment", "backward", "share", "remember", "validate")


def earned(script: Script, limits: dict[str, float], counters: Iterable[str]) -> set[str]:
    """The counters for which the tests of an exercise give the point."""
    found = scores.score(script).as_dict()
    return {name for name in counters if found[name] <= limits[name]}


def of_area(seed: str, area: str) -> list[Fault]:
    return [fault for fault in build.picked(seed) if fault.area == area]


def standing(seed: str, places: Iterable[str]) -> list[Fault]:
    return [fault for fault in build.picked(seed) if fault.place in places]


def check_whole(seed: str, limits: dict[str, dict[str, float]]) -> None:
    """The script as it is earns nothing; each area alone all of its own, the fast script all of the whole's."""
    slow, fast = build.slow(seed), build.fast()
    for area, counters in build.GRADED.items():
        assert not earned(slow, limits[area], counters), area
        assert earned(build.repaired(seed, area), limits[area], counters) == set(counters), area
    assert not earned(slow, limits["all"], WHOLE)
    assert earned(fast, limits["all"], scores.FIELDS) == set(scores.FIELDS)


def check_alone(seed: str, limits: dict[str, dict[str, float]], places: Iterable[str] = ALONE) -> None:
    """One fault repaired earns its counter, and that alone."""
    for fault in standing(seed, places):
        found = earned(build.slow(seed, [fault]), limits[fault.area], build.GRADED[fault.area])
        assert found == {fault.counter}, fault.name


def check_left(seed: str, limits: dict[str, dict[str, float]], places: Iterable[str] = ALONE) -> None:
    """All of an area but one fault earns all but its counter. (Collectives are launched as well.)"""
    for fault in standing(seed, places):
        others = [other for other in of_area(seed, fault.area) if other is not fault]
        counters = build.GRADED[fault.area]
        lost = set(counters) - earned(build.slow(seed, others), limits[fault.area], counters)
        assert lost - {"launches_but_casts"} == {fault.counter}, fault.name
        assert fault.place == "share" or "launches_but_casts" not in lost, fault.name


def clean(source: str) -> str:
    """What ruff says about a text; "" for nothing."""
    asked = [sys.executable, "-m", "ruff", "check", "--quiet", "--stdin-filename", "train.py", "-"]
    return subprocess.run(asked, input=source, text=True, capture_output=True).stdout


def test_there_are_many_faults_of_every_kind() -> None:
    kinds = "data loading,host code,launches,syncs,memory,precision,compilation,layout,checkpointing,logging,communication"
    assert len(FAULTS) >= 24 and {fault.kind for fault in FAULTS} == set(kinds.split(","))
    for seed in SEEDS:
        assert len(build.picked(seed)) >= 14 and {f.kind for f in build.picked(seed)} == set(kinds.split(","))


def test_a_seeds_script_learns_the_same_and_is_slow() -> None:
    slow, fast = build.slow(""), build.fast()
    assert scores.apart(scores.trained(fast, scores.Run()), scores.trained(slow, scores.Run())) is None
    before, after = scores.score(slow), scores.score(fast)
    assert before.step_s > 2 * after.step_s and before.syncs > 10 * after.syncs


def test_repairs_earn_what_they_should() -> None:
    limits = capstone.budget("")
    check_whole("", limits)
    check_alone("", limits, ("augment",))
    check_left("", limits, ("backward",))


def test_scripts_read_as_clean_code() -> None:
    for seed in SEEDS:
        assert not (said := clean(build.slow(seed).source)), said


def test_what_is_given_is_up_to_date() -> None:
    """If not: python -m helpers.lessons.capstone.given"""
    assert f'"of": "{given.fingerprint()}"' in given.GIVEN.read_text(encoding="utf-8")
    assert capstone.script("").source == build.slow("").source


def test_what_is_given_does_not_age_by_the_form_of_its_programs() -> None:
    program, other = "import os\n\ndef half(x):\n    return x / 2\n", "def half(x):\n    return x / 3\n"
    form = 'from math import (\n    pi,\n)\n\n\ndef half(x):  # of it\n    """Half."""\n    return x / 2\n'
    assert given.digest(program) == given.digest(form) != given.digest(other)


def test_a_budget_that_the_repairs_hardly_change_is_refused() -> None:
    for name, slow, best in (
        ("saved_bytes", 100.0, 96.0),
        ("launches_but_casts", 10.0, 12.0),
        ("syncs", 9.0, 8.75),
    ):
        with pytest.raises(ValueError, match=f"{name}: {slow:g} before the repairs, {best:g} after"):
            given._limit(name, {name: slow}, {name: best})
        assert given._limit(name, {name: slow}, {name: best}, graded=False) >= best
    for best, limit in ((99.0, 99.1), (9.0, 10.5)):
        assert given._limit("syncs", {"syncs": 100.0}, {"syncs": best}) == pytest.approx(limit)
    assert given._limit("compilations", {"compilations": 100.0}, {"compilations": 1.0}) == 1.0


def test_a_board_that_learns_the_same_goes_into_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[str] = []
    monkeypatch.setattr(progress, "keep_board", lambda title, board: kept.append(title))
    script = capstone.script("")
    assert capstone.compare(script, script.replace(cost=_half)).odd and not kept
    assert capstone.compare(script, script).same and kept == [scores.BOARD]


def _summed(model):  # type: ignore[no-untyped-def]
    if dist.is_initialized():  # type: ignore[name-defined]  # noqa: F821 - the script's
        for p in model.parameters():
            dist.all_reduce(p.grad)  # type: ignore[name-defined]  # noqa: F821


def _forgotten(model):  # type: ignore[no-untyped-def]
    if dist.is_initialized():  # type: ignore[name-defined]  # noqa: F821 - the script's
        for p in model.parameters():
            dist.all_reduce(p.grad.clone())  # type: ignore[name-defined]  # noqa: F821


def _shared_too_early(model, batch, parts):  # type: ignore[no-untyped-def]
    kept, total = [], 0
    for number, (pictures, labels, mirrored) in enumerate(pieces(batch, parts)):  # type: ignore[name-defined]  # noqa: F821
        if number == parts - 1:
            share(model)  # type: ignore[name-defined]  # noqa: F821
        logits, loss = forward(model, augment(pictures, mirrored), labels)  # type: ignore[name-defined]  # noqa: F821
        (loss / parts).backward()
        kept.append(logits.detach())
        total += loss.detach() / parts
    return torch.cat(kept), total


def test_a_board_has_ranks_with_other_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same on every rank, who never copies back what came in would train alike."""
    script = capstone.script("")
    costs = scores.score(script)
    monkeypatch.setattr(
        scores, "score", lambda script: costs
    )  # what it costs takes seconds, and is not asked
    assert (
        "length of the gradient" in capstone.compare(script, script.replace(accumulate=_shared_too_early)).odd
    )
    assert "length of the gradient" in capstone.compare(script, script.replace(share=_forgotten)).odd
    assert "share, called by itself" in (alone.changed(script, script.replace(share=_forgotten)) or "")


def test_a_board_calls_parts_by_themselves_too() -> None:
    """What no loss of a small run of one rank shows: a sum for a mean, GELU by erf, a weight decay that is gone."""
    script = capstone.script("")
    for name, part in {
        "share": _summed,
        "activation": torch.nn.functional.gelu,
        "make_optimizer": lambda model: torch.optim.Adam(model.parameters(), lr=2e-3),
    }.items():
        assert f"{name}, called by itself" in (alone.changed(script, script.replace(**{name: part})) or "")
    assert alone.changed(script, build.fast()) is None


def test_a_function_can_be_copied_as_part_prints_it() -> None:
    """Its annotations are names of train.py. The first cell defers them, for what a kernel compiles after it, too."""
    cells = masters.read(find(["17_capstone"])[0]).cells
    compiled = codeop.Compile()  # remembers `from __future__`, as IPython does
    compiled(next(cell.source for cell in cells if cell.kind == "setup"), "<setup>", "exec")
    for name in PARTS:
        exec(compiled(capstone.script().part(name), "<answer>", "exec"), {"torch": torch})


def test_a_repair_may_compile_what_calls_the_scripts_own() -> None:
    compiled = torch.compile(lambda block, x: block(x), backend="eager")
    script = capstone.script("").replace(through=compiled)
    run = scores.Run(steps=1, layers=1, files=32, compiled=True)
    for one in (script, script.replace(clip=_as_it_is)):  # another run's module has the same names
        assert scores.trained(one, run)["compilations"] > 0


def _as_it_is(model, most=1.0):  # type: ignore[no-untyped-def]
    return torch.nn.utils.clip_grad_norm_(model.parameters(), most)


def _half(logits, labels):  # type: ignore[no-untyped-def]
    return F.cross_entropy(logits, labels) / 2  # type: ignore[name-defined]  # noqa: F821 - the script's


LOOK = """
import sys
from helpers.lessons import capstone
from helpers.lessons.capstone import given
assert given.__file__.startswith(sys.argv[1]), given.__file__
print(len(capstone.script().source), capstone.budget()["data"]["syncs"], given.sent_bytes(), capstone.script().module().Size())
try:
    capstone.script("another class")
except LookupError as problem:
    print(problem)
"""


def test_a_students_copy_has_its_classs_script_and_no_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variant.SEED, "spring")
    monkeypatch.setattr(
        given, "made", lambda seed: {**given._given(""), "seed": seed, "source": build.slow(seed).source}
    )
    monkeypatch.setattr(given, "CLASS", tmp_path / "given_class.json")
    given._given.cache_clear()
    files = bundle._helpers([masters.read(path) for path in find(["17"])])
    given._given.cache_clear()
    in_it = {Path(name).name for name in files if name.startswith("helpers/lessons/capstone/")}
    assert not in_it & {"fast.py", "catalogue.py", "build.py", "given_class.json"} and "given.json" in in_it
    catalogued = Path(catalogue.__file__).read_bytes()
    for fault in FAULTS:
        entry = f'"{fault.name}", "{fault.place}"'.encode()
        assert entry in catalogued and not [n for n, data in files.items() if entry in data], fault.name
    folder = tmp_path / "student"
    bundle.write_folder(files, folder)
    (folder / "helpers/class_seed.txt").write_text("spring\n")
    ran = subprocess.run(
        [sys.executable, "-c", LOOK, str(folder)], cwd=folder, env={"PATH": "/usr/bin:/bin"}, text=True, capture_output=True
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    about, *kept_back = ran.stdout.splitlines()
    assert about.startswith(f"{len(build.slow('spring').source)} ") and "Size(side=16" in about
    assert len(kept_back) == 1 and "kept back" in kept_back[0]
