"""The bucket explorer: bucket size, ranks and links, and how much of the gradients' all-reduces backward hides."""

from __future__ import annotations

from typing import Any

from helpers.plots.picture import Picture
from helpers.ranks.links import LINKS
from helpers.simulator.world.buckets import Backward, Plan, overlap
from helpers.simulator.world.network import World
from helpers.text.seconds import format_seconds

from .movable import Explorer

RANKS = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
CAPS_MB = (0.5, 1, 2, 5, 10, 25, 50, 100, 200, 1000)
DEFAULT = "default"  # DDP without bucket_cap_mb: 1 MiB for the first, 25 for the others
PER_NODE = 8


class BucketExplorer(Explorer):
    """Controls for DDP's buckets; a widget if live, else a picture.

    `settings`: cap_mb (MiB, or "default"), ranks, link (inside a node of 8), between (nodes); `set` changes them; `plan` what they make;
    `static()` the picture; `widget` the ipywidgets box (None without ipywidgets).
    """

    kind = "bucket explorer"

    plan: Plan
    world: World

    def __init__(self, run: Backward, **settings: Any) -> None:
        self.backward = run
        super().__init__(**settings)

    def _compute(self) -> None:
        s = self.settings
        nodes = max(1, s["ranks"] // PER_NODE)
        self.world = World(s["ranks"], s["link"], nodes, s["between"] if nodes > 1 else None)
        everybody = tuple(range(s["ranks"]))

        def seconds(nbytes: int) -> float:
            return self.world.seconds("all_reduce", nbytes, everybody)

        self.plan = overlap(self.backward, seconds, None if s["cap_mb"] == DEFAULT else s["cap_mb"])

    @property
    def _buckets(self) -> str:
        cap = self.settings["cap_mb"]
        return "buckets of 1 MiB, then 25 (the default)" if cap == DEFAULT else f"buckets of {cap:g} MiB"

    @property
    def facts(self) -> str:
        """What the settings come to, in one line."""
        plan, alone = self.plan, self.backward.seconds
        return (
            f"{self._buckets} · {len(plan.buckets)} all-reduces of {self.backward.bytes / 1e6:.0f} MB "
            f"together · {format_seconds(plan.communication_s)} of sending, {format_seconds(plan.exposed_s)} of it exposed · "
            f"forward and backward {format_seconds(alone)}, {plan.exposed_s / alone:.0%} longer with the others"
        )

    def static(self) -> Picture:
        """The picture of the present settings."""
        from helpers.plots import overlapped

        return overlapped(
            self.plan, marks={"backward begins": self.backward.forward_s}, note=str(self.world),
            title="B" + self._buckets[1:],
        )  # fmt: skip

    def _build(self, ipywidgets: Any) -> None:
        caps = [
            (DEFAULT, DEFAULT),
            *((f"{c:g}", c) for c in sorted({*CAPS_MB, self.settings["cap_mb"]} - {DEFAULT})),
        ]
        ranks = [(f"{n:,}", n) for n in RANKS]
        slider, menu, still = ipywidgets.SelectionSlider, ipywidgets.Dropdown, {"continuous_update": False}
        for name, label, make, options, more in (
            ("cap_mb", "bucket, MiB", slider, caps, still), ("ranks", "ranks", slider, ranks, still),
            ("link", f"inside a node of {PER_NODE}", menu, list(LINKS), {}), ("between", "between nodes", menu, list(LINKS), {}),
        ):  # fmt: skip
            self._control(make, name, label, self.settings[name], options=options, **more)
        self._stack([list(self.controls.values())])

    def _draw(self) -> None:
        super()._draw()
        if self._widget is not None:
            self.controls["between"].disabled = self.world.nodes == 1

    def _told(self) -> tuple[str, str]:
        return self.backward.evidence, self.facts


def bucket_explorer(
    run: Backward | None = None, cap_mb: float | str = DEFAULT, ranks: int = 64, link: str = "NVLink 4",
    between: str = "InfiniBand NDR",
) -> BucketExplorer:  # fmt: skip
    """A movable data-parallel step: buckets of which size, among how many ranks, over which links.

    run: a step without communication, from `helpers.simulator.world.buckets.gradients`; None: GPT-2 (124 million
    parameters, bf16, 8 sequences of 1,024 tokens) on a simulated H100. cap_mb: DDP's bucket_cap_mb in MiB, or
    "default". link: inside a node of 8; between: from node to node. What collectives take from kernels is not in it. ValueError for settings it does not have.
    """
    if (
        ranks not in RANKS
        or link not in LINKS
        or between not in LINKS
        or isinstance(cap_mb, str)
        and cap_mb != DEFAULT
    ):
        raise ValueError(
            f"ranks: one of {', '.join(map(str, RANKS))}; link and between: {', '.join(LINKS)}; cap_mb: MiB, or {DEFAULT!r}"
        )
    return BucketExplorer(run or _gpt2(), cap_mb=cap_mb, ranks=ranks, link=link, between=between)


def _gpt2() -> Backward:
    import torch

    from helpers.models import GPT2
    from helpers.simulator import simulate
    from helpers.simulator.world.buckets import gradients

    gpu = simulate("H100")
    with gpu:
        with torch.device(gpu.device):
            model = GPT2().to(torch.bfloat16)
            tokens = torch.zeros(8, 1024, dtype=torch.int64)
            targets = torch.zeros(8 * 1024, dtype=torch.int64)
        loss = torch.nn.functional.cross_entropy
        return gradients(gpu, model, lambda: loss(model(tokens).flatten(0, 1).float(), targets))
