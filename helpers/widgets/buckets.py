"""The bucket explorer: bucket size, ranks and links, and how much of the gradients' all-reduces backward hides."""

from __future__ import annotations

from html import escape
from typing import Any

from helpers.plots.picture import Picture
from helpers.plots.style import WIDTH
from helpers.ranks.links import LINKS
from helpers.seconds import format_seconds
from helpers.simulator.buckets import Backward, Plan, overlap
from helpers.simulator.network import World, world

from .movable import Movable

__all__ = ["BucketExplorer", "bucket_explorer"]

RANKS = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
CAPS_MB = (0.5, 1, 2, 5, 10, 25, 50, 100, 200, 1000)
PER_NODE = 8


class BucketExplorer(Movable):
    """Controls for DDP's buckets; a widget if live, else a picture.

    `settings`: cap_mb, ranks, link (inside a node of 8), between (nodes); `set` changes them; `plan` what they make;
    `static()` the picture; `widget` the ipywidgets box (None without ipywidgets).
    """

    kind = "bucket explorer"

    def __init__(self, run: Backward, **settings: Any) -> None:
        self.backward = run
        self.settings: dict[str, Any] = {}
        self.controls: dict[str, Any] = {}
        self.image: Any = None
        self._text: Any = None
        self._busy = False
        self.plan: Plan
        self.world: World
        self.set(**settings)

    def set(self, **settings: Any) -> None:
        """Show these settings: controls, picture and text follow."""
        self.settings |= settings
        s = self.settings
        nodes = max(1, s["ranks"] // PER_NODE)
        self.world = world(
            s["ranks"],
            s["link"],
            nodes,
            s["between"] if nodes > 1 else None,
            None,
            0,
            None,
            0.0,
            0,
            True,
            None,
        )
        everybody = tuple(range(s["ranks"]))
        first = min(1.0, s["cap_mb"])
        self.plan = overlap(
            self.backward,
            lambda nbytes: self.world.seconds("all_reduce", nbytes, everybody),
            s["cap_mb"],
            first,
        )
        if self._widget is not None:
            self._busy = True
            try:
                for name, control in self.controls.items():
                    control.value = s[name]
            finally:
                self._busy = False
            self._draw()

    @property
    def facts(self) -> str:
        """What the settings come to, in one line."""
        plan, alone = self.plan, self.backward.seconds
        return (
            f"{self.settings['cap_mb']:g} MiB buckets · {len(plan.buckets)} all-reduces of {self.backward.bytes / 1e6:.0f} MB "
            f"together · {format_seconds(plan.communication_s)} of sending, {format_seconds(plan.exposed_s)} of it exposed · "
            f"forward and backward {format_seconds(alone)}, {plan.exposed_s / alone:.0%} longer with the others"
        )

    def static(self) -> Picture:
        """The picture of the present settings."""
        from helpers.plots import overlapped

        return overlapped(
            self.plan, marks={"backward begins": self.backward.forward_s}, note=str(self.world),
            title=f"Buckets of {self.settings['cap_mb']:g} MiB",
        )  # fmt: skip

    def _build(self, ipywidgets: Any) -> None:
        wide, box = {"description_width": "11em"}, ipywidgets.Layout(width="28em")
        s = self.settings
        caps = sorted({*CAPS_MB, s["cap_mb"]})
        for name, label, options in (
            ("cap_mb", "bucket, MiB", [(f"{c:g}", c) for c in caps]), ("ranks", "ranks", [(f"{n:,}", n) for n in RANKS]),
        ):  # fmt: skip
            self.controls[name] = ipywidgets.SelectionSlider(
                options=options,
                value=s[name],
                description=label,
                style=wide,
                layout=box,
                continuous_update=False,
            )
        for name, label in (("link", f"inside a node of {PER_NODE}"), ("between", "between nodes")):
            self.controls[name] = ipywidgets.Dropdown(
                options=list(LINKS), value=s[name], description=label, style=wide, layout=box
            )
        for control in self.controls.values():
            control.observe(self._moved, names="value")
        fit = ipywidgets.Layout(width="100%", max_width=f"{round(WIDTH * 96)}px")
        self.image = ipywidgets.Image(format="png", layout=fit)
        self._text = ipywidgets.HTML()
        row = ipywidgets.HBox(list(self.controls.values()), layout=ipywidgets.Layout(flex_flow="row wrap"))
        self._widget = ipywidgets.VBox([row, self.image, self._text])
        self._draw()

    def _moved(self, change: Any) -> None:
        if not self._busy:
            self.set(**{name: control.value for name, control in self.controls.items()})

    def _draw(self) -> None:
        self.controls["between"].disabled = self.world.nodes == 1
        self.image.value = self.static().png()
        self._text.value = f"<code>{escape(self.facts)}</code>"

    def _told(self) -> tuple[str, str]:
        return self.backward.evidence, self.facts


def bucket_explorer(
    run: Backward | None = None, cap_mb: float = 25, ranks: int = 64, link: str = "NVLink 4",
    between: str = "InfiniBand NDR",
) -> BucketExplorer:  # fmt: skip
    """A movable data-parallel step: buckets of which size, among how many ranks, over which links.

    run: a step without communication, from `helpers.simulator.buckets.gradients`; None: GPT-2 (124 million
    parameters, bf16, 8 sequences of 1,024 tokens) on a simulated H100. link: inside a node of 8; between: from node
    to node. What collectives take from kernels is not in it. ValueError for settings it does not have.
    """
    if ranks not in RANKS or link not in LINKS or between not in LINKS or cap_mb <= 0:
        raise ValueError(
            f"ranks: one of {', '.join(map(str, RANKS))}; link and between: {', '.join(LINKS)}; cap_mb > 0"
        )
    return BucketExplorer(run or _gpt2(), cap_mb=cap_mb, ranks=ranks, link=link, between=between)


def _gpt2() -> Backward:
    import torch

    from helpers.recordings.models import GPT2
    from helpers.simulator import simulate
    from helpers.simulator.buckets import gradients

    gpu = simulate("H100")
    with gpu:
        with torch.device(gpu.device):
            model = GPT2().to(torch.bfloat16)
            tokens = torch.zeros(8, 1024, dtype=torch.int64)
            targets = torch.zeros(8 * 1024, dtype=torch.int64)
        return gradients(
            gpu,
            model,
            lambda: torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1).float(), targets),
        )
