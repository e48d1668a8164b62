"""What became of many: a bar for each group, in pieces by kind."""

from __future__ import annotations

from collections.abc import Mapping

from helpers.plots import style
from helpers.plots.picture import Picture, drawn


@drawn
def shares(groups: Mapping[str, Mapping[str, int]], *, evidence: str, title: str, xlabel: str) -> Picture:
    """A bar for each group: how many of each kind, side by side. groups: name → kind → number, the kinds in one order.

    The pieces carry their numbers, so that no colour has to be told from another. ValueError for no groups.
    """
    if not groups:
        raise ValueError("shares: no groups; give name → kind → number")
    kinds = list(dict.fromkeys(kind for counted in groups.values() for kind in counted))
    colours = (style.GREEN, style.SKY, style.VERMILLION, style.FAINT)
    fig, _ = style.figure(1.1 + 0.36 * len(groups), evidence=evidence, title=title)
    ax = fig.subplots()
    left = dict.fromkeys(groups, 0)
    for kind, colour in zip(kinds, colours, strict=False):
        numbers = [groups[name].get(kind, 0) for name in groups]
        ax.barh(
            range(len(groups)), numbers, 0.66, left=list(left.values()), color=colour, edgecolor=style.PAPER, label=kind
        )  # fmt: skip
        for row, (name, number) in enumerate(zip(groups, numbers, strict=True)):
            if number:
                ax.text(
                    left[name] + number / 2, row, str(number), va="center", ha="center", fontsize=style.SMALL
                )
            left[name] += number
    style.row_names(ax, list(groups))
    ax.set_ylim(len(groups) - 0.5, -0.5)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(xlabel)
    ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), labelspacing=0.8)
    text = "; ".join(
        f"{name}: " + ", ".join(f"{n} {k}" for k, n in counted.items()) for name, counted in groups.items()
    )
    return Picture(fig, evidence, f"{title}: {text}")
