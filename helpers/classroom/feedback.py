"""The page that a learner gets back: score, exercises by name, each verdict first; no script, no network.

``nbgrader generate_feedback`` and the formgrader's button make it: ``helpers.classroom.grading`` sets
``c.GenerateFeedback.exporter_class`` to :class:`FeedbackExporter`. Points, comments and grades by hand come from the
gradebook, titles and tests from the lesson's reference, answers and verdicts from the notebook in ``autograded/``.
"""

from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup
from nbconvert.exporters import Exporter
from nbconvert.filters.ansi import strip_ansi
from nbformat import NotebookNode
from nbgrader.api import Gradebook
from nbgrader.converters import GenerateFeedback
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer
from traitlets import Bool, default

from helpers.classroom import sheet, wording
from helpers.classroom.markdown import to_html
from helpers.classroom.sanitise import PICTURES, allowed, reference, visible
from helpers.text.pages import POLICY

PAGES = Path(__file__).with_name("pages")
#: characters of what one answer printed; a page is for reading
MOST_PRINTED = 20_000
_COLOURS = HtmlFormatter(style="default", nowrap=True)


@dataclass
class Points:
    """Of one test. earned: ``None`` until someone has graded it. by_hand: a person has set it, and the tests gave `auto`."""

    earned: float | None
    possible: float
    auto: float | None = None
    by_hand: bool = False
    waits: bool = False


@dataclass
class Test:
    """passed: ``None`` where it did not run. text: what it said. look: a person should look at it."""

    name: str
    passed: bool | None
    text: str
    points: Points
    look: bool = False

    @property
    def headline(self) -> str:
        return self.text.partition("\n")[0]

    @property
    def more(self) -> str:
        return self.text.partition("\n")[2]


@dataclass
class Marked:
    """One exercise as its learner reads it."""

    asked: sheet.Exercise
    tests: list[Test]
    answer: str = ""
    printed: str = ""
    pictures: list[str] = field(default_factory=list)
    comment: str = ""

    @property
    def look(self) -> bool:
        return any(test.look for test in self.tests)

    @property
    def earned(self) -> float:
        return sum(t.points.earned or 0.0 for t in self.tests)

    @property
    def possible(self) -> float:
        return sum(t.points.possible for t in self.tests)

    @property
    def waits(self) -> bool:
        return self.look or any(t.points.waits for t in self.tests)

    @property
    def state(self) -> str:
        if self.waits:
            return "waits"
        return "right" if self.earned >= self.possible else "part" if self.earned > 0 else "wrong"

    @property
    def shown_tests(self) -> str:
        return "\n\n".join(s for name, s in self.asked.tests.items() if not sheet.is_hidden(name))

    @property
    def hidden_tests(self) -> str:
        return "\n\n".join(s for name, s in self.asked.tests.items() if sheet.is_hidden(name))


class FeedbackExporter(Exporter):
    """Writes the page of one graded notebook: the lesson's. Others that a teacher has in its folder are passed over.

    nbgrader would look each of them up in the gradebook, find no grades there, and give the student no feedback at all.
    """

    show_hidden = Bool(
        False,
        help="Show hidden tests, their inputs and what they said in full (for use after a course has ended).",
    ).tag(config=True)
    output_mimetype = "text/html"

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        if isinstance(self.parent, GenerateFeedback):
            self.parent.assignments = {
                folder: [notebook for notebook in found if Path(notebook).stem == Path(folder).name]
                for folder, found in self.parent.assignments.items()
            }

    @default("file_extension")
    def _file_extension_default(self) -> str:
        return ".html"

    def from_notebook_node(  # type: ignore[override]
        self, nb: NotebookNode, resources: Any = None, **kw: Any
    ) -> tuple[str, dict[str, Any]]:
        nb, resources = super().from_notebook_node(nb, resources, **kw)
        about = resources["nbgrader"]
        asked = sheet.read(self._reference(about)) or sheet.of(nb, about["notebook"])
        with Gradebook(about["db_url"]) as gradebook:
            graded = gradebook.find_submission_notebook(
                about["notebook"], about["assignment"], about["student"]
            )
            points, comments = _points(graded), {c.name: c.manual_comment or "" for c in graded.comments}
            penalty = graded.late_submission_penalty or 0.0
            who, handed_in = _name(graded.student), graded.assignment.timestamp
        report = nb.metadata.get("course_grading", {})
        cells = {str(c.metadata.get("nbgrader", {}).get("grade_id", "")): c for c in nb.cells}
        tests = {name: _test(name, report, points) for exercise in asked.exercises for name in exercise.tests}
        if not self.show_hidden:
            _hide(asked, tests, about["assignment"])
        marked = [
            _marked(exercise, nb, cells, tests, comments.get(exercise.id, "")) for exercise in asked.exercises
        ]
        untouched = not any(p.by_hand for p in points.values())
        page = _environment().get_template("feedback.html")
        style = (PAGES / "feedback.css").read_text(encoding="utf-8") + _COLOURS.get_style_defs(".code")
        html = page.render(
            title=asked.title,
            who=who,
            handed_in=handed_in,
            policy=POLICY.replace("'{style}'", allowed(style)),
            style=Markup(style),
            exercises=marked,
            penalty=penalty,
            earned=max(0.0, sum(p.earned or 0.0 for p in points.values()) - penalty),
            possible=sum(p.possible for p in points.values()),
            waits=any(exercise.waits for exercise in marked),
            notes=[str(n) for n in report.get("notes", [])],
            not_gradable=str(report.get("not_gradable", "")) if untouched else "",
            show_hidden=self.show_hidden,
        )
        return html, resources

    def _reference(self, about: dict[str, str]) -> Path:
        coursedir = getattr(self.parent, "coursedir", None)
        if coursedir is None:
            return Path(about["notebook"] + ".ipynb")
        return reference(coursedir, about["assignment"], about["notebook"])


def _points(graded: Any) -> dict[str, Points]:
    return {
        grade.name: Points(
            None if grade.auto_score is None and grade.manual_score is None else grade.score,
            grade.max_score,
            grade.auto_score,
            by_hand=grade.manual_score is not None or bool(grade.extra_credit),
            waits=bool(grade.needs_manual_grade),
        )
        for grade in graded.grades
    }


def _name(student: Any) -> str:
    full = " ".join(part for part in (student.first_name, student.last_name) if part)
    return f"{full} ({student.id})" if full else str(student.id)


def _test(name: str, report: dict[str, Any], points: dict[str, Points]) -> Test:
    """One test, as grading noted it."""
    noted = report.get("verdicts", {}).get(name, {"passed": None, "text": "", "human": ""})
    return Test(
        "Further tests" if sheet.is_hidden(name) else "Test",
        noted["passed"],
        visible(wording.plainly(str(noted["text"]))),
        points.get(name) or Points(None, 0.0),
        bool(noted["human"]),
    )


def _hide(asked: sheet.Sheet, tests: dict[str, Test], lesson: str) -> None:
    """Takes inputs and values out of what hidden tests said, and what a visible one says already."""
    for exercise in asked.exercises:
        shown = [tests[name].text for name in exercise.tests if not sheet.is_hidden(name)]
        lines = {line.strip() for text in shown for line in text.split("\n")}
        for test in (tests[name] for name in exercise.tests if sheet.is_hidden(name)):
            if test.passed:
                test.text = ""
            elif test.text in shown:
                test.text = "the same"
            else:
                head, *more = wording.discreetly(test.text, lesson).split("\n")
                test.text = "\n".join([head, *(line for line in more if line not in lines)])


def _marked(
    asked: sheet.Exercise,
    nb: NotebookNode,
    cells: dict[str, NotebookNode],
    tests: dict[str, Test],
    comment: str,
) -> Marked:
    own = [c for c in nb.cells if c.cell_type == "code" and _belongs(c, asked.id, cells)]
    printed, pictures = _printed(own)
    return Marked(
        asked,
        [tests[name] for name in asked.tests],
        answer=visible("\n\n".join(c.source for c in own)),
        printed=printed,
        pictures=pictures,
        comment=comment,
    )


def _belongs(cell: NotebookNode, exercise: str, cells: dict[str, NotebookNode]) -> bool:
    """Whether it is the exercise's cell, or one that the learner added for it."""
    about = cell.metadata.get("course", {})
    return cell is cells.get(exercise) or (about.get("role") == "added" and about.get("exercise") == exercise)


def _printed(cells: list[NotebookNode]) -> tuple[str, list[str]]:
    """What these cells printed or raised, and their pictures as data addresses."""
    texts, pictures = [], []
    for output in (o for cell in cells for o in cell.outputs):
        if output.output_type == "stream":
            texts.append(output.text)
        elif output.output_type == "error":
            if output.ename == "NotImplementedError":
                continue  # the empty cell; its verdict says so
            texts.append("\n".join(output.traceback) or f"{output.ename}: {output.evalue}")
        else:
            figures = [
                f"data:{mime};base64,{''.join(output.data[mime].split())}"
                for mime in PICTURES
                if mime in output.data
            ]
            pictures += figures
            texts += [] if figures else [output.data.get("text/plain", "") + "\n"]
    text = visible(strip_ansi("".join(texts)))
    if len(text) > MOST_PRINTED:
        text = f"{text[:MOST_PRINTED]}\n… and {len(text) - MOST_PRINTED:,} characters more"
    return text, pictures


@cache
def _environment() -> Environment:
    """The page's template; what stands on everybody's page (tasks, tests) is rendered once."""
    environment = Environment(
        loader=FileSystemLoader(PAGES), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "python": lru_cache(1000)(lambda code: Markup(highlight(code, PythonLexer(stripnl=False), _COLOURS))),
        "task": lru_cache(1000)(lambda text: Markup(to_html(text, trusted=True))),
        "comment": lambda text: Markup(to_html(visible(text), trusted=False)),
        "number": lambda points: f"{points:.2f}".rstrip("0").rstrip("."),
    }
    return environment
