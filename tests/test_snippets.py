"""The snippets of the sources: each is there, does what it did on the tested version, and the same a second time."""

import pytest

from helpers.lesson import sources
from helpers.lessons.sources_on_trial import snippets

#: id → (how the result begins as written, … as it should be), with torch 2.13.0. "" is a run without an error
EXPECTED = {
    "compile-300/network": (
        "one picture of 32×32: (1, 10); of 64×64: (4, 10)",
        "one picture of 32×32: (1, 10); of 64×64: RuntimeError",
    ),
    "compile-300/max-autotune": ("sets max_autotune=True, triton.cudagraphs=True", "sets max_autotune=True"),
    "compile-300/amp": ("FutureWarning: `torch.cuda.amp.GradScaler", "2 steps"),
    "compile-300/memory-fraction": ("0 MiB reserved", "one tensor of 512 MiB, made and dropped: 512 MiB"),
    "five-strategies/accumulation": (
        "10 micro-batches, 2 steps of the optimizer; 2 left",
        "10 micro-batches, 3 steps of the optimizer; 0 left",
    ),
    "book-notes/comm-hook": ("TypeError: register_comm_hook() missing 2", "the hook was called 1 time"),
    "book-notes/dynamic": ("3 sizes: 1 graph", "the same; dynamic not given: 3 sizes: 2 graphs"),
}


def test_every_snippet_of_the_list_is_there() -> None:
    assert snippets.SNIPPETS.keys() == EXPECTED.keys()
    assert {s.source for s in snippets.SNIPPETS.values()} <= sources.every().keys()


@pytest.mark.parametrize("name", EXPECTED)
def test_it_does_what_it_did_and_the_same_again(name: str) -> None:
    outcome = snippets.outcome(name)
    for line, expected in zip(outcome, EXPECTED[name], strict=True):
        assert line.startswith(expected)
        assert "\n" not in line and " at 0x" not in line and "≈" not in line
    assert outcome == snippets.outcome(name)


def test_a_line_says_where_it_ran_and_what_it_raised() -> None:
    snippet = snippets.SNIPPETS["book-notes/comm-hook"]
    assert snippet.as_written().startswith("on the simulated GPU: TypeError: ")
    assert snippet.as_it_should().startswith("on the simulated GPU: runs; ")
