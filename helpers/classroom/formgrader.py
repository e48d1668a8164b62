"""nbgrader's formgrader under a content policy: on its pages runs what nbgrader ships, and nothing of a submission.

``make lab TEACHER=1`` loads this extension in place of nbgrader's own (``etc/teacher/``). The pages are
nbgrader's. Its templates are read through :class:`_Templates`, which gives each script of theirs a number that is drawn
anew for every page; the browser runs scripts with that number only, wherever a student's text may have got to. Student
ids and names are escaped, formulas need no network, and files of a submission are shown as if from a stranger's site.
"""

import html
import re
import secrets
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import BaseLoader, Environment, FileSystemLoader
from jupyter_server.utils import url_path_join
from nbconvert.exporters import HTMLExporter
from nbformat import NotebookNode
from nbgrader.apps import NbGraderAPI
from nbgrader.server_extensions.formgrader import apihandlers, base, handlers
from nbgrader.server_extensions.formgrader.base import BaseHandler
from nbgrader.server_extensions.formgrader.formgrader import FormgradeExtension
from tornado import web

from helpers.classroom.exchange import handed_in
from helpers.classroom.markdown import to_html
from helpers.classroom.sanitise import allowed, harmless, reference
from helpers.classroom.settings import odd_id

_POLICY = "; ".join(
    [
        "default-src 'self'",
        "script-src 'nonce-{nonce}'",
        "script-src-attr 'unsafe-hashes' {clicks}",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data:",
        "font-src 'self' data:",
        "object-src 'none'",
        "frame-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'self'",
    ]
)
#: for files that a student handed in: no script, and no part in this site's cookies
_STRANGER = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'"
#: nbgrader waits for MathJax before it takes keys; formulas are MathML here
_NO_MATHJAX = (
    '<script>var MathJax = {Hub: {Startup: {signal: {Interest: function (ready) { $(function () { ready("End"); }); '
    "}}}}};</script>"
)


@cache
def _clicks() -> str:
    """The handlers that nbgrader's own pages set, such as the eye that shows and hides a name."""
    places = (Path(handlers.template_path).rglob("*.*"), Path(handlers.static_path, "js").glob("*.js"))
    texts = [path.read_text(encoding="utf-8") for found in places for path in found]
    codes = {
        code
        for text in texts
        for code in re.findall(r"""\bonclick["']?(?:=|, )["']([^"']+)["']""", text, re.I)
    }
    return " ".join(map(allowed, sorted(codes)))


class _Templates(BaseLoader):
    """nbgrader's templates, with the page's number on each script, and values quoted where a script uses them."""

    def __init__(self) -> None:
        self._files = FileSystemLoader([handlers.template_path, f"{handlers.template_path}/formgrade"])

    def get_source(self, environment: Environment, template: str) -> Any:
        source, path, current = self._files.get_source(environment, template)
        source = source.replace("{{ mathjax() }}", _NO_MATHJAX)
        source = re.sub(r'= "\{\{ ([\w.]+) \}\}(/\w+)?";', r'= {{ (\1 ~ "\2") | tojson }};', source)
        nonce = "{{ nonce or resources.nonce }}"
        return source.replace("<script", f'<script nonce="{nonce}"'), path, current


class _Submission(HTMLExporter):
    """The page of one submission, made harmless once more: it may have been graded in another way."""

    formgrader: FormgradeExtension

    def default_filters(self) -> Any:
        yield from super().default_filters()
        yield "markdown2html", lambda source: to_html(source, trusted=True)

    def from_filename(self, filename: str, resources: Any = None, **kw: Any) -> Any:
        # they stand in the page as they are
        safe = {k: html.escape(v) if isinstance(v, str) else v for k, v in (resources or {}).items()}
        return super().from_filename(filename, resources=safe, **kw)

    def from_notebook_node(self, nb: NotebookNode, resources: Any = None, **kw: Any) -> Any:
        built = reference(self.formgrader.coursedir, resources["assignment_id"], resources["notebook_id"])
        return super().from_notebook_node(harmless(nb, built), resources, **kw)


class Api(NbGraderAPI):
    """What the pages ask. Stock nbgrader fails on all of a lesson's submissions where one holds no time that it can read;
    what lies under a name that is no student's id is graded by nobody, and is not among them."""

    def get_submitted_students(self, assignment_id: str) -> set[str]:
        return {student for student in super().get_submitted_students(assignment_id) if not odd_id(student)}

    def get_submitted_timestamp(self, assignment_id: str, student_id: str) -> datetime | None:
        course = self.coursedir
        return handed_in(course.format_path(course.submitted_directory, student_id, assignment_id))


base.NbGraderAPI = Api  # a page makes one for each request


class _WithNonce:
    """An exporter that tells its template the number of the page."""

    def __init__(self, exporter: HTMLExporter, nonce: str) -> None:
        self._exporter, self._nonce = exporter, nonce

    def from_filename(self, filename: str, resources: Any = None) -> Any:
        return self._exporter.from_filename(filename, resources={**(resources or {}), "nonce": self._nonce})


class _Guarded:
    """A page of the formgrader, under the policy."""

    @property
    def nonce(self) -> str:
        if not hasattr(self, "_nonce"):
            self._nonce = secrets.token_urlsafe(16)
        return self._nonce

    @property
    def content_security_policy(self) -> str:
        return _POLICY.format(nonce=self.nonce, clicks=_clicks())

    @property
    def exporter(self) -> Any:
        return _WithNonce(super().exporter, self.nonce)  # type: ignore[misc]

    def render(self, name: str, **values: Any) -> str:
        return str(super().render(name, nonce=self.nonce, **values))  # type: ignore[misc]


class _Handed:
    """A file that a student handed in."""

    content_security_policy = _STRANGER


class Formgrader(FormgradeExtension):
    def init_tornado_settings(self, webapp: Any) -> None:
        super().init_tornado_settings(webapp)
        webapp.settings["nbgrader_jinja2_env"] = Environment(loader=_Templates(), autoescape=True)
        exporter = _Submission(config=self.config, extra_loaders=[_Templates()])
        exporter.formgrader = self
        webapp.settings["nbgrader_exporter"] = exporter

    def init_handlers(self, webapp: Any) -> None:
        rest = [
            (r"/formgrader/static/(.*)", web.StaticFileHandler, {"path": handlers.static_path}),
            (r"/formgrader/.*", handlers.Template404),
        ]
        every = [*handlers.default_handlers, *apihandlers.default_handlers, *rest]
        at = webapp.settings["base_url"]
        webapp.add_handlers(
            ".*$", [(url_path_join(at, path), _policed(handler), *more) for path, handler, *more in every]
        )


def _policed(handler: type) -> type:
    if not issubclass(handler, BaseHandler):
        return handler
    policy = _Handed if handler is handlers.SubmissionFilesHandler else _Guarded
    return type(handler.__name__, (policy, handler), {})


def _load_jupyter_server_extension(server: Any) -> None:
    formgrader = Formgrader(parent=server)
    formgrader.root_dir = server.root_dir
    formgrader.log = server.log
    formgrader.initialize([])
    formgrader.init_tornado_settings(server.web_app)
    formgrader.init_handlers(server.web_app)
