"""The snippets of the four sources: each is there, does what it did on the tested version, and the same a second time."""

import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec

import pytest
import torch

from helpers.lesson import sources
from helpers.lessons.sources_on_trial import snippets

#: what EXPECTED was read with
TORCH = "2.13.0"
#: id → (how the result begins as written, … as it should be), behind where it was run. "" is a run without an error
EXPECTED = {
    "guide/jit-script": ("DeprecationWarning: `torch.jit.script` is deprecated", "1 graph of 3"),
    "guide/cudagraphs": ("no graph of CUDA", "a replay is 1 launch for 3 kernels"),
    "guide/autocast": ("IndentationError", "the result is float16"),
    "guide/threads": ("TypeError", "1 thread"),
    "compile-300/three-steps": ("AssertionError", "1 graph of 2"),
    "compile-300/fusion-before": ("TypeError: batch_norm() missing 2", "3 operators"),
    "compile-300/fusion-after": ("2 steps: new weights in each", "2 steps: 1 graph"),
    "compile-300/layout": ("RuntimeError: Unexpected optimization option memory_format", "the result is channels_last: True"),
    "compile-300/tensorrt-dynamic": ("InvalidBackend", "dynamic=True, batches of 16 and 64: 1 graph"),
    "compile-300/install": ("not run", "not run"),
    "compile-300/check": ("torch.compile available: True", "a compiled call there raises InductorError"),
    "compile-300/network": (
        "one picture of 32×32: (1, 10); of 64×64: (4, 10)",
        "one picture of 32×32: (1, 10); of 64×64: RuntimeError",
    ),
    "compile-300/compile": ("0 calls: 0 graphs", "1 call: 1 graph of 5"),
    "compile-300/train": ("random pictures", "random pictures"),
    "compile-300/backend-inductor": ("1 graph of 2", "1 graph of 2"),
    "compile-300/backend-tensorrt": ("InvalidBackend", "not run: needs NVIDIA's TensorRT"),
    "compile-300/max-autotune": ("sets max_autotune=True, triton.cudagraphs=True", "sets max_autotune=True"),
    "compile-300/reduce-overhead": ("sets triton.cudagraphs=True", "mode not given sets nothing"),
    "compile-300/amp": ("FutureWarning: `torch.cuda.amp.GradScaler", "2 steps"),
    "compile-300/half-layers": ("RuntimeError: mat1 and mat2 must have the same dtype", "the result is bfloat16"),
    "compile-300/pool-allocator": ("AttributeError", "nothing is set; 3 tensors of 64 MiB, one after another: 64 MiB"),
    "compile-300/memory-fraction": ("0 MiB reserved", "one tensor of 512 MiB, made and dropped: 512 MiB"),
    "compile-300/negative-size": ("RuntimeError", "dynamic=True, batches of 16 and 64: 1 graph"),
    "compile-300/shapes": ("InvalidBackend", "mark_dynamic(x, 0, min=16, max=64), batches of 16 and 64: 1 graph"),
    "compile-300/bert-load": ("small, random weights: 2 texts", "small, random weights: 2 texts"),
    "compile-300/bert-train": ("InternalTorchDynamoError: AttributeError", "small, random weights: 3 steps"),
    "compile-300/pipe-load": ("small, random weights: its models are float16",) * 2,
    "compile-300/pipe": ("small, random weights: a picture", "small, random weights: pipe.unet compiled"),
    "compile-300/utilization": ("ModuleNotFoundError", "in a trace of small products"),
    "compile-300/allocated": ("0 bytes allocated", ""),
    "compile-300/event": ("RuntimeError", "some time between two events"),
    "compile-300/profiler": ("a table, sorted by cuda_time_total", "a table, sorted by cpu_time_total"),
    "five-strategies/amp": ("FutureWarning: `torch.cuda.amp.GradScaler", "2 steps"),
    "five-strategies/profiler": ("0 calls of prof.step(), 0 traces", "6 calls of prof.step(), 1 trace"),
    "five-strategies/accumulation": (
        "10 micro-batches, 2 steps of the optimizer; 2 left",
        "10 micro-batches, 3 steps of the optimizer; 0 left",
    ),
    "five-strategies/ddp": ("ValueError", "process 0 of 2"),
    "five-strategies/workers": ("with 0 GPUs 0 workers", "loads of 30 ms"),
    "five-strategies/image-folder": ("TypeError: got an unexpected keyword argument 'num_workers'", "accepts"),
    "five-strategies/loader": ("ValueError: prefetch_factor", "2 batches from 1 worker"),
    "five-strategies/fused-adam": ("AttributeError", "Adam(fused=True): 2 kernels"),
    "book-notes/wait-stream": ("NameError", "2 streams update one tensor, 0 races"),
    "book-notes/implementations": ("TypeError", "kernels of a first step"),
    "book-notes/max-split-size": ("ValueError", "64 MiB after 256 MiB were freed: 320 MiB"),
    "book-notes/comm-hook": ("TypeError: register_comm_hook() missing 2", "the hook was called 1 time"),
    "book-notes/amp": ("FutureWarning: `torch.cuda.amp.GradScaler", "the result is float16"),
    "book-notes/fullgraph": ("1 graph of 5", "the same; where Python asks for a tensor's value it raises UserError"),
    "book-notes/dynamic": ("3 sizes: 1 graph", "the same; dynamic not given: 3 sizes: 2 graphs"),
    "book-notes/mode": ("RuntimeError: Unrecognized mode", "sets triton.cudagraphs=True"),
}  # fmt: skip
#: what is needed beside the course itself
MODELS = {"compile-300/" + name for name in ("bert-load", "bert-train", "pipe-load", "pipe")}


def bare(happened: str) -> str:
    """Without where it was run, and without "runs; "."""
    return re.sub(r"^(on the [\w ]+|against [\w' ]+): |^runs; ", "", happened).removeprefix("runs; ")


def differences(happened: Mapping[str, Sequence[str]], models: bool) -> list[str]:
    """What differs from EXPECTED, a line each. happened: id → (result as written, … as it should be);
    models: whether the libraries of MODELS are installed."""
    found = []
    for name, results in happened.items():
        for said, expected in zip(results, EXPECTED[name], strict=True):
            if name in MODELS and not models:
                same = said.partition(": ")[2].startswith(snippets.NOT_RUN) or said.startswith(
                    snippets.NOT_RUN
                )
            else:
                same = bare(said).startswith(expected)
            if not same:
                found.append(f"{name}: {said!r}, and not {expected!r}")
    return found


def test_another_result_is_named_with_every_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "99.0")
    happened = {
        "guide/jit-script": ("on the CPU: FutureWarning: old", "on the CPU: 1 graph of 3"),
        "guide/threads": ("on the CPU: TypeError: no", "on the CPU: runs; 1 thread"),
    }
    (one,) = differences(happened, models=False)
    assert one.startswith("guide/jit-script: 'on the CPU: FutureWarning: old', and not 'DeprecationWarning")


def test_every_snippet_of_the_list_is_there() -> None:
    assert [one.id for one in snippets.SNIPPETS] == [*EXPECTED]
    listed = {name: int(n) for name, n in re.findall(r"(?m)^([\w-]+), (\d+) ", snippets.__doc__ or "")}
    for source, n in listed.items():
        assert source in sources.every()
        assert sum(one.source == source for one in snippets.SNIPPETS) == n, source
    assert sum(listed.values()) == len(EXPECTED)
    assert snippets.LITERALLY.keys() <= EXPECTED.keys()


@pytest.mark.slow
@pytest.mark.skipif(
    torch.cuda.is_available(), reason="a few of the results are those of a machine without a GPU"
)
def test_they_do_what_they_did_and_the_same_again() -> None:
    there = all(find_spec(name) for name in ("transformers", "diffusers"))
    ran = snippets.ran()
    for name, source, _, _, *happened in ran:
        assert name.startswith(source + "/")
        assert name not in snippets.LITERALLY or snippets.fails(happened[0]), (
            f"{name}: what is there to explain?"
        )
        assert not any("\n" in said or " at 0x" in said or "≈" in said for said in happened)
    differing = differences({name: happened for name, _, _, _, *happened in ran}, there)
    assert not differing, "\n".join(
        [f"{len(differing)} results of PyTorch {TORCH} are others with {torch.__version__}:", *differing]
    )
    first = [(name, *happened) for name, _, _, _, *happened in ran if name not in MODELS]
    again = [one for one in snippets.SNIPPETS[::-1] if one.id not in MODELS]
    assert first[::-1] == [(one.id, one.as_written(), one.as_it_should()) for one in again]


def test_what_fails_is_told_from_what_runs() -> None:
    assert snippets.fails("on the CPU: TypeError: batch_norm() missing 2 required arguments")
    assert snippets.fails("on the CPU: FutureWarning: old; TypeError: no")
    assert not snippets.fails("on the CPU: FutureWarning: old; runs; 2 steps")
    assert not snippets.fails("not run: needs NVIDIA's TensorRT")
