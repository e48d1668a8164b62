"""Predict first: a row of buttons for each question, and a result that is shown when every question has an answer.

    you = lesson.predict({"x.reshape(24)": ..., "x.t().reshape(24)": ...}, choices=["view", "copy"])
    you.against(measured, evidence="live (CPU)")

An answer is clicked, or typed in place of ``...``. Where there are no widgets, and while the course is built, questions
and results are tables.
"""

from __future__ import annotations

import base64
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from helpers import progress
from helpers.text.tables import Table, cell_html, table
from helpers.widgets.view import view

__all__ = ["Outcome", "Prediction", "predict", "spelled"]

STATIC = ("COURSE_BUILD", "HELPERS_STATIC_WIDGETS")
#: a label of evidence → how a column of such results is headed
_HEADS = {
    "live": "measured",
    "recorded": "measured",
    "published": "measured",
    "simulated": "simulated",
    "arithmetic": "computed",
}


def nearest(value: float, choices: Sequence[float]) -> float:
    """The choice that is nearest by ratio."""
    return min(choices, key=lambda choice: abs(math.log(value / choice)))


def about(share: float, choices: Sequence[float]) -> str:
    """The nearest of some shares, in words: "about 40 %"."""
    return f"about {100 * nearest(share, choices):.0f} %"


def spelled(answer: Any) -> Any:
    """Words that mean the same alike: capitals, outer spaces, 1.0x for 1.0×, True for "yes". Numbers stay numbers."""
    if isinstance(answer, bool):
        return "yes" if answer else "no"
    return answer.strip().casefold().replace("×", "x") if isinstance(answer, str) else answer


def _word(answer: Any) -> str:
    word = str(spelled(answer))
    try:
        return f"{float(word):g}"  # "1", 1 and 1.0 are one answer
    except ValueError:
        return word


def _label(choice: Any) -> str:
    return f"{choice:,}" if type(choice) is int else str(choice)


def predict(questions: Mapping[str, Any], choices: Sequence[Any] | Mapping[str, Sequence[Any]]) -> Prediction:
    """Ask, and show the buttons. questions: question → an answer, or ``...`` to click one.

    choices: the answers that may be given, two or more; or a mapping, question → its own.
    ValueError for a question without two different choices. An answer that is none of them is asked back.
    """
    asked = Prediction(questions, choices)
    asked.show()
    return asked


class Prediction(Mapping[str, Any]):
    """Questions and what the learner said; ``...`` where there is no answer yet.

    offered: question → its choices. revealed: whether results are shown without all answers.
    """

    def __init__(
        self, questions: Mapping[str, Any], choices: Sequence[Any] | Mapping[str, Sequence[Any]]
    ) -> None:
        self.offered: dict[str, tuple[Any, ...]] = {}
        self._odd: dict[str, str] = {}
        self._said: dict[str, Any] = {}
        self._outcomes: list[Outcome] = []
        self.revealed = False
        kept = progress.predicted()
        for question, typed in questions.items():
            offers = tuple(choices.get(question, ()) if isinstance(choices, Mapping) else choices)
            if len({_word(c) for c in offers}) < max(2, len(offers)):
                raise ValueError(f"predict: {question!r} needs two or more different choices, not {offers!r}")
            self.offered[question] = offers
            if typed is ...:
                typed = kept.get(question, ...)
                if not self._is_offered(question, typed):
                    typed = ...  # kept from another version of the lesson
            elif not self._is_offered(question, typed):
                self._odd[question] = f"{typed!r} is none of {', '.join(map(str, offers))}"
                typed = ...
            self._said[question] = typed

    def __getitem__(self, question: str) -> Any:
        return self._said[question]

    def __iter__(self) -> Iterator[str]:
        return iter(self._said)

    def __len__(self) -> int:
        return len(self._said)

    @property
    def unanswered(self) -> list[str]:
        """The questions without an answer."""
        return [q for q, said in self._said.items() if said is ...]

    def say(self, question: str, answer: Any) -> None:
        """Give an answer, as a click on its button does. KeyError, ValueError: there is no such question or choice."""
        if not self._is_offered(question, answer):
            raise ValueError(f"{answer!r} is none of {', '.join(map(str, self.offered[question]))}")
        self._said[question] = answer
        self._odd.pop(question, None)
        progress.remember(question, answer)
        for outcome in self._outcomes:
            outcome.follow()

    def reveal(self) -> None:
        """Show the results without an answer."""
        self.revealed = True
        for outcome in self._outcomes:
            outcome.follow()

    def against(self, measured: Mapping[str, Any], *also: Any, evidence: str, what: str = "") -> Outcome:
        """What came out, question → value, beside what was said; shown once every question has an answer.

        also: tables, pictures and widgets that would give the result away; they are shown with it. what: the
        column's head, else by the evidence: "measured", "simulated", "computed". ValueError where a question has no value; while the course is built, also where a
        value is none of the question's choices.
        """
        if missing := [q for q in self if q not in measured]:
            raise ValueError(f"against: nothing was measured for {', '.join(map(repr, missing))}")
        if os.environ.get("COURSE_BUILD"):
            for question in self:
                if not self._is_offered(question, measured[question]):
                    raise ValueError(
                        f"measured {measured[question]!r} for {question!r}, which nobody can answer"
                    )
        rows = {q: (str(measured[q]),) for q in self}
        return self._outcome(Outcome(self, measured, rows, [what or _head(evidence)], also, evidence))

    def against_ratios(
        self, ratios: Mapping[str, float], *also: Any, evidence: str, what: str, shown: str = "{:.2f}"
    ) -> Outcome:
        """As `against`, where choices are numbers: right is the nearest by ratio; the ratio itself stands beside it."""
        near, rows = {}, {}
        for question in self:
            ratio = ratios[question]
            near[question] = nearest(ratio, self.offered[question])
            rows[question] = (str(near[question]), shown.format(ratio))
        return self._outcome(Outcome(self, near, rows, [f"{what}, about", _head(evidence)], also, evidence))

    def _outcome(self, outcome: Outcome) -> Outcome:
        self._outcomes = [outcome]  # of a cell that runs again, the last
        return outcome

    def _is_offered(self, question: str, answer: Any) -> bool:
        return _word(answer) in map(_word, self.offered[question])

    # --- on the screen ---

    def show(self) -> None:
        """The buttons in a notebook; nothing elsewhere."""
        display = _display()
        if display is None:
            return
        widgets = _widgets()
        bundle = {"text/plain": repr(self), "text/html": self._repr_html_()}
        if widgets is not None:
            rows = [self._row(widgets, question) for question in self]
            bundle |= view(widgets.VBox(rows))
        display(bundle, raw=True)

    def _row(self, widgets: Any, question: str) -> Any:
        offers = self.offered[question]
        chosen = next((i for i, c in enumerate(offers) if _word(c) == _word(self[question])), None)
        buttons = widgets.ToggleButtons(
            options=[(_label(c), i) for i, c in enumerate(offers)],
            index=chosen,
            tooltips=[f"{question}: {c}" for c in offers],
            style={"button_width": "auto"},
        )
        buttons.observe(lambda change: self.say(question, offers[change["new"]]), names="value")
        note = f" <small>{escape(self._odd[question])}</small>" if question in self._odd else ""
        label = widgets.HTML(cell_html(question) + note, layout=widgets.Layout(min_width="16em"))
        return widgets.HBox([label, buttons], layout=widgets.Layout(flex_flow="row wrap"))

    def __repr__(self) -> str:
        lines = [(q, " · ".join(map(_label, self.offered[q])) + self._beside(q)) for q in self]
        width = max((len(q) for q, _ in lines), default=0)
        return "\n".join(f"{q.ljust(width)}  {rest}" for q, rest in lines)

    def _repr_html_(self) -> str:
        left = 'style="text-align:left"'
        rows = "".join(
            f"<tr><td {left}>{cell_html(q)}</td><td {left}>"
            + escape(" · ".join(map(_label, self.offered[q])) + self._beside(q))
            + "</td></tr>"
            for q in self
        )
        return f"<table><thead><tr><th {left}>predict first</th><th {left}>your choices</th></tr></thead><tbody>{rows}</tbody></table>"

    def _beside(self, question: str) -> str:
        if question in self._odd:
            return f"   ({self._odd[question]})"
        return "" if self[question] is ... else f"   (you said {self[question]})"


def _head(evidence: str) -> str:
    """The word for results of that evidence: no number is called measured that was not."""
    kinds = {word for label, word in _HEADS.items() if label in str(evidence)}
    return kinds.pop() if len(kinds) == 1 else "result"


class Outcome:
    """What was measured beside what was said. Ends a cell, or is shown by ``.show()`` within one."""

    def __init__(
        self,
        asked: Prediction,
        right: Mapping[str, Any],
        rows: Mapping[str, tuple[str, ...]],
        columns: Sequence[str],
        also: Sequence[Any],
        evidence: str,
    ) -> None:
        self._asked, self._right, self._rows, self._columns = asked, right, rows, columns
        self._also, self._evidence = also, evidence
        self._place: Any = None

    def table(self) -> Table:
        """Question, what was measured, what was said with ✓ or ✗."""
        rows, given, hits = [], 0, 0
        for question, (first, *others) in self._rows.items():
            said, mark = self._asked[question], "—"
            if said is not ...:
                given += 1
                hit = _word(said) == _word(self._right[question])
                hits += hit
                mark = f"{said} " + ("✓" if hit else "✗")
            rows.append((question, first, mark, *others))
        caption = f"{hits} of {given} predicted right" if given else ""
        columns = ["question", self._columns[0], "you said", *self._columns[1:]]
        return table(rows, columns, evidence=self._evidence, caption=caption)

    @property
    def is_open(self) -> bool:
        """Whether it may be seen: every question has an answer, or the learner wants it without."""
        return self._asked.revealed or not self._asked.unanswered or any(map(os.environ.get, STATIC))

    def _remember(self) -> None:
        """It is being seen: what was said until now is what was predicted."""
        if any(map(os.environ.get, STATIC)):
            return
        shown = self._rows
        progress.came_out(
            {
                question: {
                    "said": None if said is ... else str(said),
                    "measured": " · ".join(dict.fromkeys(shown[question])),
                    "right": _word(said) == _word(self._right[question]),
                    "choices": len(self._asked.offered[question]),
                    "evidence": self._evidence,
                }
                for question, said in self._asked.items()
            }
        )

    def show(self) -> None:
        """Show it in a notebook, print it elsewhere."""
        display = _display()
        if display is None:
            print(self)
            if self.is_open:
                self._remember()
        else:
            self._ipython_display_()

    def __repr__(self) -> str:
        return "\n".join(map(repr, (self.table(), *self._also))) if self.is_open else self._waiting()

    def _waiting(self) -> str:
        n = len(self._asked.unanswered)
        questions = "the question" if len(self._asked) == 1 else f"{n} more question{'s' * (n > 1)}"
        return f"Answer {questions} above, and the result appears here."

    def _ipython_display_(self) -> None:
        from IPython.display import display

        if self.is_open:
            self._remember()
            for part in (self.table(), *self._also):
                display(part)
            return
        widgets = _widgets()
        if widgets is None:
            how = "To see it without, run `you.reveal()` and then this cell again."
            print(f"{self._waiting()} Type answers in place of the dots and run both cells again.\n{how}")
            return
        self._place = widgets.VBox([])
        self.follow()
        plain = {"text/plain": self._waiting(), "text/html": f"<p>{escape(self._waiting())}</p>"}
        display(plain | view(self._place), raw=True)

    def follow(self) -> None:
        """The answers have changed: so does what is on the screen, where it waits for them."""
        widgets = _widgets()
        if self._place is None or widgets is None:
            return
        if not self.is_open:
            button = widgets.Button(description="show me", tooltip="show the result without an answer")
            button.on_click(lambda _: self._asked.reveal())
            self._place.children = [widgets.HTML(f"<p>{escape(self._waiting())}</p>"), button]
        else:
            self._remember()
            self._place.children = [_as_widget(widgets, part) for part in (self.table(), *self._also)]


def _as_widget(widgets: Any, part: Any) -> Any:
    if getattr(part, "widget", None) is not None:
        return part.widget
    if hasattr(part, "_repr_png_"):
        png, about = part._repr_png_()
        data = base64.b64encode(png).decode("ascii")
        size = f'width="{about["width"]}" style="max-width:100%"'
        return widgets.HTML(f'<img src="data:image/png;base64,{data}" alt="{escape(about["alt"])}" {size}>')
    if hasattr(part, "_repr_html_"):
        left = part._repr_html_().replace("<table>", '<table style="margin:0">')  # JupyterLab centres it here
        return widgets.HTML(f'<div class="jp-RenderedHTMLCommon">{left}</div>')
    return widgets.HTML(f"<pre>{escape(repr(part))}</pre>")


def _display() -> Any:
    """IPython's display within a notebook's kernel, else None."""
    try:
        from IPython import get_ipython
        from IPython.display import display
    except ImportError:
        return None
    return display if get_ipython() is not None else None


def _widgets() -> Any:
    if any(map(os.environ.get, STATIC)):
        return None
    try:
        import ipywidgets
    except ImportError:
        return None
    return ipywidgets
