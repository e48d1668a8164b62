"""The memory model against what is tracked: real steps on the CPU, and steps on the simulated GPU."""

from __future__ import annotations

import gc
from contextlib import nullcontext
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from helpers import count, memory, plots, simulate
from helpers.counters.watch import Watch

# ------------------------------------------------------------------------------------------------- families


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()

        def block(i: int, o: int) -> nn.Module:
            return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(inplace=True))

        self.body = nn.Sequential(block(3, 32), block(32, 64), nn.MaxPool2d(2), block(64, 64))
        self.head = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x).mean((2, 3)))


class Encoder(nn.Module):
    def __init__(self, kind: int = 128) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(kind, 4, 4 * kind, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(kind, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x).mean(1))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(64, 128, 2, batch_first=True)
        self.head = nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x)[0][:, -1])


class Recommender(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(20_000, 32), nn.Embedding(30_000, 32)
        self.body = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, pairs: torch.Tensor) -> torch.Tensor:
        return self.body(torch.cat([self.users(pairs[:, 0]), self.items(pairs[:, 1])], 1))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = self.qkv(self.before(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.between(x))


class GPT(nn.Module):
    """A decoder whose output layer shares its weight with the embedding."""

    def __init__(
        self, words: int = 2_000, length: int = 64, width: int = 128, depth: int = 2, heads: int = 4
    ) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)).flatten(0, 1)


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()

        def block(i: int, o: int) -> nn.Module:
            return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(8, o), nn.SiLU())

        self.down1, self.down2, self.bottom = block(3, 32), block(32, 64), block(64, 128)
        self.up2, self.up1, self.out = block(128 + 64, 64), block(64 + 32, 32), nn.Conv2d(32, 10, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = F.interpolate(self.bottom(F.max_pool2d(b, 2)), scale_factor=2)
        d = F.interpolate(self.up2(torch.cat([c, b], 1)), scale_factor=2)
        return self.out(self.up1(torch.cat([d, a], 1))).mean((2, 3))


class Family(NamedTuple):
    make: Any
    inputs: torch.Tensor
    classes: int = 10


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(inplace=True), nn.Linear(512, 10)
    )


FAMILIES = {
    "MLP": Family(mlp, torch.randn(1024, 256)),
    "ConvNet": Family(ConvNet, torch.randn(8, 3, 32, 32)),
    "Encoder": Family(Encoder, torch.randn(8, 64, 128)),
    "LSTM": Family(Recurrent, torch.randn(96, 6, 64)),
    "Embeddings": Family(Recommender, torch.randint(0, 20_000, (2048, 2))),
    "GPT": Family(GPT, torch.randint(0, 2_000, (4, 64)), 2_000),
    "UNet": Family(UNet, torch.randn(4, 3, 32, 32)),
}
OPTIMIZERS = {
    "SGD": partial(torch.optim.SGD, lr=0.01),
    "SGD, momentum": partial(torch.optim.SGD, lr=0.01, momentum=0.9),
    "AdamW": torch.optim.AdamW,
}


def labels(family: Family) -> torch.Tensor:
    """As many as the output has rows."""
    rows = family.inputs.numel() if family.classes > 10 else len(family.inputs)
    return torch.randint(0, family.classes, (rows,))


# ------------------------------------------------------------------------------------------------- the truth


class Tracked(NamedTuple):
    peak: int
    static: dict[str, int]
    gradients: int
    saved: int
    forward: int
    step: int


def size(tensors: Any, seen: set[int] | None = None, device: str = "") -> int:
    """Bytes of distinct storages."""
    seen, total = set() if seen is None else seen, 0
    for t in tensors:
        if t.untyped_storage()._cdata not in seen and device in ("", t.device.type):
            seen.add(t.untyped_storage()._cdata)
            total += t.untyped_storage().nbytes()
    return total


def states(optimizer: Any) -> list[torch.Tensor]:
    return [t for state in optimizer.state.values() for t in state.values() if isinstance(t, torch.Tensor)]


def forward(device: str, model: nn.Module, x: torch.Tensor, y: torch.Tensor, dtype: Any) -> Any:
    with torch.autocast(device, dtype=dtype) if dtype else nullcontext():
        out = model(x)
        return out, F.cross_entropy(out, y)


def one_step(
    device: str, model: nn.Module, x: torch.Tensor, y: torch.Tensor, optimizer: Any, dtype: Any
) -> None:
    out, loss = forward(device, model, x, y, dtype)
    loss.backward()
    optimizer.step()
    del out


def on_cpu(model: nn.Module, x: torch.Tensor, y: torch.Tensor, make: Any, dtype: Any = None) -> Tracked:
    """A step for the optimizer's states, and then one under the counters."""
    optimizer = make(model.parameters())
    one_step("cpu", model, x, y, optimizer, dtype)
    model.zero_grad()
    seen: set[int] = set()
    static = {
        "parameters": size(model.parameters(), seen),
        "buffers": size(model.buffers(), seen),
        "inputs": size([x, y], seen),
        "optimizer": size(states(optimizer), seen),
    }
    before = count(forward, "cpu", model, x, y, dtype)
    output = size(before.result)
    del before.result
    whole = count(one_step, "cpu", model, x, y, optimizer, dtype).peak_live_bytes
    grads = size(p.grad for p in model.parameters() if p.grad is not None)
    inside = count(optimizer.step).peak_live_bytes
    held = sum(static.values())
    return Tracked(
        held + whole,
        static,
        grads,
        before.saved_bytes,
        held + before.peak_live_bytes,
        held + grads + output + inside,
    )


def on_gpu(build: Any, x: torch.Tensor, y: torch.Tensor, make: Any, dtype: Any = None) -> Tracked:
    """The same on the simulated GPU, by its allocator. cuBLAS's workspaces, which are no tensors, are taken off."""
    with simulate("H100") as gpu:
        with torch.device(gpu.device):
            model = build()
        x, y = x.to(gpu.device), y.to(gpu.device)
        optimizer = make(model.parameters())
        one_step("cuda", model, x, y, optimizer, dtype)
        model.zero_grad()
        gpu.reset_peak_memory_stats()
        one_step("cuda", model, x, y, optimizer, dtype)
        peak = gpu.max_memory_allocated()
        static = {
            "parameters": size(model.parameters()),
            "buffers": size(model.buffers()),
            "inputs": size([x, y]),
            "optimizer": size(states(optimizer), device="meta"),
        }
        grads = size(p.grad for p in model.parameters() if p.grad is not None)
        del model, x, y, optimizer
        gc.collect()
        peak -= gpu.memory_allocated()
    return Tracked(peak, static, grads, 0, 0, 0)


def estimate(family: Family, model: nn.Module, y: torch.Tensor, **options: Any) -> memory.Estimate:
    return memory.estimate(model, family.inputs, loss=F.cross_entropy, target=y, **options)


def agree(found: memory.Estimate, tracked: Tracked, within: float) -> None:
    assert found.parameters == tracked.static["parameters"]
    assert found.buffers == tracked.static["buffers"]
    assert found.inputs == tracked.static["inputs"]
    assert found.optimizer_states == tracked.static["optimizer"]
    assert found.gradients == tracked.gradients
    assert found.peak_bytes == pytest.approx(tracked.peak, rel=within)


# ------------------------------------------------------------------------------------------------- the tests


@pytest.mark.parametrize(
    ("kind", "optimizer"),
    [
        *((kind, "AdamW") for kind in FAMILIES),
        *product(["MLP", "ConvNet", "Embeddings"], ["SGD", "SGD, momentum"]),
    ],
)
def test_steps_on_the_cpu(kind: str, optimizer: str) -> None:
    family, make = FAMILIES[kind], OPTIMIZERS[optimizer]
    model, y = family.make(), labels(family)
    tracked, found = on_cpu(model, family.inputs, y, make), estimate(family, model, y, optimizer=make)
    agree(found, tracked, 0.001)
    assert found.saved == tracked.saved
    assert found.peaks["forward"] == pytest.approx(tracked.forward, rel=0.001)
    assert found.peaks["step"] == pytest.approx(tracked.step, rel=0.001)
    assert found.evidence == "arithmetic"


@pytest.mark.parametrize("kind", FAMILIES)
def test_steps_on_the_simulated_gpu(kind: str) -> None:
    family = FAMILIES[kind]
    y = labels(family)
    found = estimate(family, family.make(), y, optimizer="adamw", device="H100")
    agree(
        found, on_gpu(family.make, family.inputs, y, torch.optim.AdamW), 0.02
    )  # the allocator rounds to 512
    assert found.evidence == "simulated (H100)"


@pytest.mark.parametrize("optimizer", ["SGD, momentum", "AdamW"])
def test_foreach_and_loop(optimizer: str) -> None:
    family = FAMILIES["MLP" if optimizer == "SGD, momentum" else "GPT"]
    model, y = family.make(), labels(family)
    steps = {}
    for foreach in (True, False):
        make = partial(OPTIMIZERS[optimizer], foreach=foreach)
        found = estimate(family, model, y, optimizer=OPTIMIZERS[optimizer], foreach=foreach)
        agree(found, on_cpu(model, family.inputs, y, make), 0.001)
        steps[foreach] = found.peaks["step"]
    found = estimate(family, model, y, optimizer=OPTIMIZERS[optimizer], foreach=False, device="H100")
    agree(
        found, on_gpu(family.make, family.inputs, y, make), 0.02
    )  # with True: test_steps_on_the_simulated_gpu
    # AdamW by lists takes a square root of every second moment at once: a parameter's worth for all of them.
    assert (steps[True] > steps[False]) == (optimizer == "AdamW")


@pytest.mark.parametrize("kind", ["ConvNet", "GPT"])
def test_autocast(kind: str) -> None:
    family = FAMILIES[kind]
    model, y = family.make(), labels(family)
    found = estimate(family, model, y, optimizer=OPTIMIZERS["SGD"], autocast=torch.bfloat16)
    tracked = on_cpu(model, family.inputs, y, OPTIMIZERS["SGD"], torch.bfloat16)
    agree(found, tracked, 0.002)
    assert found.saved == pytest.approx(
        tracked.saved, rel=0.002
    )  # BatchNorm's statistics: bf16, where it is fp32
    if kind == "GPT":
        found = estimate(family, model, y, optimizer=OPTIMIZERS["SGD"], autocast=True, device="H100")
        agree(found, on_gpu(family.make, family.inputs, y, OPTIMIZERS["SGD"], torch.bfloat16), 0.02)


class Saving(GPT):
    """With checkpoints around its blocks, written as one writes them."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(self.norm(x)).flatten(0, 1)


def test_checkpoints() -> None:
    make = partial(GPT, words=300, depth=3)
    model = make()
    x, y = torch.randint(0, 300, (8, 64)), torch.randint(0, 300, (512,))
    family, sgd = Family(make, x, 300), OPTIMIZERS["SGD"]
    plain = estimate(family, model, y, optimizer=sgd)
    by_class = estimate(family, model, y, optimizer=sgd, checkpoint=Block)
    names = [f"blocks.{i}" for i in range(3)]
    assert by_class == estimate(family, model, y, optimizer=sgd, checkpoint=lambda name, part: name in names)
    saving = Saving(words=300, depth=3)
    tracked = on_cpu(saving, x, y, sgd)
    agree(by_class, tracked, 0.01)
    agree(estimate(family, saving, y, optimizer=sgd), tracked, 0.01)
    found = estimate(family, model, y, optimizer=sgd, checkpoint=Block, device="H100")
    agree(found, on_gpu(partial(Saving, words=300, depth=3), x, y, sgd), 0.02)
    assert by_class.activations < 0.4 * plain.activations and by_class.peak_bytes < plain.peak_bytes
    assert by_class.at_peak["recomputed"] > 0 and "recomputed" not in plain.at_peak
    # All of them in one: the peak comes back, since everything is computed again at once.
    model.blocks = nn.ModuleList([nn.Sequential(*model.blocks)])
    one = estimate(family, model, y, optimizer=sgd, checkpoint=lambda name, part: name == "blocks.0")
    assert one.activations < by_class.activations and one.peak_bytes > by_class.peak_bytes


def test_checkpoints_with_dropout_keep_the_learners_random_numbers() -> None:
    family = FAMILIES["Encoder"]
    model, y, state = family.make(), labels(family), torch.get_rng_state()
    for device in ("cpu", "H100"):
        found = estimate(family, model, y, checkpoint=nn.TransformerEncoderLayer, device=device)
        assert found.at_peak["recomputed"]
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("passes", [2, 3])
def test_micro_batches(passes: int) -> None:
    family = FAMILIES["ConvNet"]
    model, y = family.make(), labels(family)
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        for _ in range(passes):
            out = model(family.inputs)
            loss = F.cross_entropy(out, y) / passes
            loss.backward()
        optimizer.step()
        del out, loss

    step()
    model.zero_grad()
    held = size([*model.parameters(), *model.buffers(), family.inputs, y, *states(optimizer)])
    tracked = held + count(step).peak_live_bytes
    found = estimate(family, model, y, micro_batches=passes)
    assert found.peak_bytes == pytest.approx(tracked, rel=0.001)
    # The gradients of the first pass are there in the forward of the second.
    once = estimate(family, model, y)
    assert found.peaks["forward"] == pytest.approx(once.peaks["forward"] + found.gradients, rel=0.001)


def test_the_output_can_be_let_go() -> None:
    model, x = nn.Linear(10, 1000, bias=False), torch.randn(64, 10)
    options: dict[str, Any] = {"loss": lambda out: (out * 2).sum(), "optimizer": None}
    keep = memory.estimate(model, x, **options)
    drop = memory.estimate(model, x, keep_output=False, **options)
    assert keep.peaks["backward"] - drop.peaks["backward"] == 64 * 1000 * 4 == keep.at_peak["output"] - 4


# ------------------------------------------------------------------------------------------------- arithmetic


def test_by_hand() -> None:
    """Two layers without a bias: every number from the shapes."""
    model = nn.Sequential(nn.Linear(20, 50, bias=False), nn.Tanh(), nn.Linear(50, 30, bias=False))
    found = memory.estimate(model, torch.empty(100, 20, device="meta"), optimizer="adam", foreach=False)
    weights = 4 * (20 * 50 + 50 * 30)
    x, h = 4 * 100 * 20, 4 * 100 * 50
    assert (found.parameters, found.gradients, found.buffers) == (weights, weights, 0)
    assert found.optimizer_states == 2 * weights + 2 * 4  # two moments, and a counter for each weight
    assert (found.inputs, found.saved, found.activations) == (
        x,
        x + h,
        h,
    )  # tanh and the second layer share h
    static = 3 * weights + 8
    assert found.static_bytes == static
    assert found.peaks["forward"] == static + x + 2 * h  # before and after tanh; the output is smaller
    assert sum(found.at_peak.values()) == found.peak_bytes == max(found.peaks.values())
    assert found.timeline.total.max() == found.peak_bytes
    assert (found.timeline.bytes >= 0).all()


def test_frozen_parameters() -> None:
    model = nn.Sequential(nn.Linear(100, 100), nn.Linear(100, 100), nn.Linear(100, 10))
    model[0].requires_grad_(False)
    model[1].bias.requires_grad_(False)
    found = memory.estimate(model, torch.randn(4, 100))
    trained = 4 * (100 * 100 + 1010)
    assert found.gradients == trained and found.optimizer_states == 2 * trained + 3 * 4
    assert found.parameters == 4 * (10_100 * 2 + 1010)
    tracked = on_cpu(model, torch.randn(4, 100), torch.randint(0, 10, (4,)), torch.optim.AdamW)
    agree(memory.estimate(model, torch.empty(4, 100), loss=F.cross_entropy, target=torch.zeros(4, dtype=torch.long)),
          tracked, 0.001)  # fmt: skip


class Shared(nn.Module):
    """Two weights are halves of one storage; a buffer is another's view; one more is in no state_dict."""

    def __init__(self) -> None:
        super().__init__()
        both = torch.randn(2, 64, 64)
        self.a, self.b = nn.Parameter(both[0]), nn.Parameter(both[1])
        self.register_buffer("table", torch.randn(64, 64))
        self.register_buffer("row", self.table[3], persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x @ self.a + self.row
        x.relu_()
        return x @ self.b + self.table.mean()


def test_shared_storages() -> None:
    model, x = Shared(), torch.randn(32, 64)
    found = memory.estimate(model, x)
    assert (found.parameters, found.buffers) == (4 * 2 * 64 * 64, 4 * 64 * 64)
    assert found.saved == 4 * (32 * 64 + 32 * 64)  # x and the one storage of the sum, which relu_ overwrites
    both = memory.estimate(model, (torch.cat([x, x])[:32],))
    assert both.inputs == 2 * found.inputs  # a view keeps the whole storage


def test_sums_of_gradients_are_in_place() -> None:
    """Where two gradients meet, the second is added to the first, unless that is a view: the profiler says so."""

    class Twice(nn.Module):
        def __init__(self, view: bool) -> None:
            super().__init__()
            self.view, self.weight = view, nn.Parameter(torch.randn(200, 200))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x @ self.weight.t() @ self.weight.t()) if self.view else (x @ self.weight @ self.weight)

    for view, most in ((False, 2), (True, 3)):
        model, x = Twice(view), torch.randn(1, 200)
        found = memory.estimate(model, x, optimizer=None)
        assert round((found.peak_bytes - found.static_bytes) / (4 * 200 * 200)) == most
        with torch.profiler.profile(profile_memory=True) as profile:
            model(x).sum().backward()
        live = peak = 0
        for change in allocations(profile):
            live += change
            peak = max(peak, live)
        assert round(peak / (4 * 200 * 200)) == most


def allocations(profile: Any) -> list[int]:
    found: list[tuple[int, int]] = []
    nodes = list(profile.profiler.kineto_results.experimental_event_tree())
    while nodes:
        node = nodes.pop()
        nodes += node.children
        if node.tag.name == "Allocation":
            found.append((node.start_time_ns, node.extra_fields.alloc_size))
    return [change for _, change in sorted(found, key=lambda one: one[0])]


def test_a_wrong_count_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The figures move when storages are counted once for each tensor, or when frees are missed."""
    family = FAMILIES["GPT"]
    model, y = family.make(), labels(family)
    right = estimate(family, model, y)
    tracked = on_cpu(model, family.inputs, y, torch.optim.AdamW)

    def each(tensors: Any, known: set[int], device: str) -> int:
        return sum(t.untyped_storage().nbytes() for t in tensors)

    with monkeypatch.context() as patched:
        patched.setattr("helpers.memory.estimating.storages", each)
        patched.setattr(
            nn.Module,
            "parameters",
            lambda self: (p for _, p in self.named_parameters(remove_duplicate=False)),
        )
        wrong = memory.estimate(model, family.inputs, loss=F.cross_entropy, target=y, optimizer=None)
    assert wrong.parameters == right.parameters + 4 * 2000 * 128
    with monkeypatch.context() as patched:
        # Watch is told all the same: memory at an address that it has not seen freed is nothing new to it
        patched.setattr("helpers.memory.meter.Meter._freed", Watch._freed)
        wrong = estimate(family, model, y)
    assert wrong.peak_bytes > 1.05 * tracked.peak
    with monkeypatch.context() as patched:
        patched.setattr("helpers.memory.meter.Meter.save", lambda self, tensor: None)
        wrong = estimate(family, model, y)
    assert wrong.activations == 0 and wrong.peak_bytes == right.peak_bytes


# ------------------------------------------------------------------------------------------------- how it is used


def test_nothing_is_left_behind() -> None:
    family = FAMILIES["ConvNet"]
    model, y = family.make().train(), labels(family)
    before = {name: (id(t), t.clone()) for name, t in model.state_dict(keep_vars=True).items()}
    state = torch.get_rng_state()
    with count() as around:
        first = estimate(family, model, y)
    assert (around.operators, around.saved_bytes, around.bytes_allocated) == (0, 0, 0)
    for name, tensor in model.state_dict(keep_vars=True).items():
        assert before[name][0] == id(tensor) and torch.equal(before[name][1], tensor) and tensor.grad is None
    assert torch.equal(torch.get_rng_state(), state)
    assert gc.isenabled() and first == estimate(family, model, y)


def test_modules_and_builders() -> None:
    x = torch.empty(4, 64, dtype=torch.long, device="meta")
    y = torch.empty(256, dtype=torch.long, device="meta")
    for device in ("cpu", "H100"):
        built = memory.estimate(GPT, x, loss=F.cross_entropy, target=y, device=device)
        assert built == memory.estimate(GPT(), x, loss=nn.CrossEntropyLoss(), target=y, device=device)


def test_gpt2_is_asked_without_its_memory() -> None:
    gpt2 = partial(GPT, words=50_257, length=1024, width=768, depth=12, heads=12)
    tokens, labels = (torch.empty(n, dtype=torch.long, device="meta") for n in ((8, 1024), (8192,)))
    found = memory.estimate(gpt2, tokens, loss=F.cross_entropy, target=labels, autocast=True, device="H100")
    assert found.parameters == 4 * 124_439_808  # as GPT-2's
    assert found.optimizer_states == 2 * found.parameters  # step counters are on the host
    assert found.peak_phase == "backward" and found.peak_bytes > 8 << 30


def test_optimizers() -> None:
    model, x = nn.Linear(100, 100, bias=False), torch.randn(2, 100)
    one = 4 * 100 * 100
    sizes = {"sgd": 0, "AdamW": 2 * one + 4, "adagrad": one + 4, torch.optim.RMSprop: one + 4, None: 0}
    for optimizer, expected in sizes.items():
        assert memory.estimate(model, x, optimizer=optimizer).optimizer_states == expected
    other = torch.optim.SGD([{"params": model.parameters(), "lr": 0.1}], momentum=0.9, nesterov=True)
    assert memory.estimate(model, x, optimizer=other).optimizer_states == one
    assert memory.estimate(model, x, optimizer=None).peaks.keys() == {"forward", "backward"}
    assert not other.state


def test_inputs_in_every_form() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor, scale: Any = None) -> dict[str, Any]:
            return {"out": self.layer(x) * (1 if scale is None else scale), "n": 3}

    model, x = Two(), torch.randn(4, 8)
    assert memory.estimate(model, x) == memory.estimate(model, [x]) == memory.estimate(model, {"x": x})
    more = memory.estimate(model, {"x": x, "scale": torch.randn(4, 8)})
    assert more.inputs == 2 * x.nbytes


def test_tables() -> None:
    found = memory.estimate(mlp(), torch.randn(64, 256))
    text = repr(found.table())
    assert "optimizer states" in text and "[arithmetic] peak in " in text
    assert f"peak {memory.size_text(found.peak_bytes)} in {found.peak_phase}" in repr(found)
    assert found.table().rows[-1][2] == memory.size_text(found.peak_bytes)


def test_errors() -> None:
    model, x = nn.Linear(8, 8), torch.randn(4, 8)
    for device in ("cpu", "H100"):
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied|same reduction dim") as caught:
            memory.estimate(model, torch.randn(4, 9), device=device)
        assert "Linear with float32[4, 9]" in caught.value.__notes__[0]
        with pytest.raises(RuntimeError) as caught:
            memory.estimate(
                model, x, loss=lambda out, y: out.mm(y).sum(), target=torch.randn(4, 7), device=device
            )
        assert "the loss" in caught.value.__notes__[0]
    with pytest.raises(ValueError, match="to be one number, and is a tensor of shape"):
        memory.estimate(model, x, loss=lambda out: out)
    with pytest.raises(ValueError, match="is every parameter frozen"):
        memory.estimate(nn.Linear(8, 8).requires_grad_(False), x)
    with pytest.raises(ValueError, match="target= is for"):
        memory.estimate(model, x, target=x)
    with pytest.raises(ValueError, match="micro_batches=0"):
        memory.estimate(model, x, micro_batches=0)
    with pytest.raises(ValueError, match="torch.optim has .*adamw"):
        memory.estimate(model, x, optimizer="adamv")
    with pytest.raises(TypeError, match="a name such as 'adamw'"):
        memory.estimate(model, x, optimizer=3)
    with pytest.raises(TypeError, match="no torch.optim.Optimizer"):
        memory.estimate(model, x, optimizer=lambda parameters: None)
    with pytest.raises(ValueError, match="chooses none"):
        memory.estimate(nn.Sequential(model, nn.ReLU()), x, checkpoint=nn.Conv2d)
    with pytest.raises(TypeError, match="this made a int"):
        memory.estimate(lambda: 3, x)
    with pytest.raises(ValueError, match="say which card"):
        memory.estimate(model, x, device="cuda")
    with pytest.raises(ValueError, match="H100"):
        memory.estimate(model, x, device="H900")
    with pytest.raises(NotImplementedError, match="only plain dense tensors"):
        memory.estimate(model, x.to_sparse())
    hooked = nn.Linear(8, 8)
    hooked.weight.register_post_accumulate_grad_hook(lambda p: None)
    with pytest.raises(ValueError, match="has hooks"):
        memory.estimate(hooked, x)

    class Asks(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * (2 if x.sum().item() > 0 else 1)

    with pytest.raises(Exception) as caught:  # noqa: B017
        memory.estimate(Asks(8, 8), x)
    assert "asks for values" in caught.value.__notes__[0]


def test_pictures() -> None:
    model, x = mlp(), torch.randn(64, 256)
    one, two = memory.estimate(model, x), memory.estimate(model, x, optimizer="sgd", micro_batches=2)
    picture = plots.memory_model(one, budget=8 << 20)
    size = memory.size_text(one.peak_bytes)
    assert f"peak {size} in {one.peak_phase}" in picture.alt and picture.evidence == "arithmetic"
    texts = {text.get_text() for text in picture.figure.findobj(lambda part: hasattr(part, "get_text"))}
    assert {"forward", "backward", "step", f"peak {size}", "budget 8 MiB", "optimizer states"} <= texts
    bars = plots.memory_model({"AdamW": one, "SGD, two passes": two}, budget=8 << 20)
    assert f"AdamW {size}" in bars.alt
    widths = [bar.get_width() for bar in bars.figure.axes[0].patches]
    assert sum(widths) == pytest.approx((one.peak_bytes + two.peak_bytes) / (1 << 20))
    assert picture.png() == plots.memory_model(one, budget=8 << 20).png()
    with pytest.raises(ValueError, match="0 estimates"):
        plots.memory_model({})
    with pytest.raises(ValueError, match="draw each on its own"):
        plots.memory_model({"CPU": one, "GPU": memory.estimate(model, x, device="H100")})
