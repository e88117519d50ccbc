"""`mase-server view`: shapes beside the source, graph, costs, problems and passes as one page for any browser.

With -o the page is a file that holds everything, its script too. Without, it is served on loopback and follows saves:
the address contains a token, since other users of the machine can connect to it, and other pages can send requests.
The page's code is that of the VS Code extension: `mase_client_vscode/src/view`.
"""

from __future__ import annotations

import hmac
import html
import json
import secrets
import sys
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, cast
from urllib.parse import urlsplit

import typer

from mase_server import __version__
from mase_server.cli.graphing import request_graph
from mase_server.cli.reports import Report, Site, Talk, request_report
from mase_server.cli.session import Refused, Subject, ask_daemon
from mase_server.cli.showing import (
    HINT,
    Asked,
    ProblemRow,
    annotated_lines,
    lacks_set,
    problem_line,
    problem_map,
    python_styles,
    source_text,
    split_by_style,
)
from mase_server.cli.steps import UsageError, complete_models, parse_steps
from mase_server.cli.terminal import say
from mase_server.cli.watching import Watch, follow_files
from mase_server.lsp.labels import label_values
from mase_server.lsp.wording import NAMES, has_hint, lens_text
from mase_server.paths import canonical_path, find_data_folder
from mase_server.private import describe_os_error
from mase_server.protocol.answers import CostTable, Graph, GraphColumns, ModelFacts, Pipeline
from mase_server.protocol.arguments import Step
from mase_server.visible import reveal

if TYPE_CHECKING:
    from mase_server.daemon.graph_snapshot import ModelView

#: The columns of a graph that the page draws.
_COLUMNS = [name for name in GraphColumns.__annotations__ if name not in ("row", "mase_type", "details")]
#: Rows of a graph for each request.
_AT_ONCE = 2000
#: The built files of the page itself, and of the pages in its frames.
_OWN = ("view.js", "view.css", "colours.css")
_PARTS = ("graph.js", "graph.css", "costs.js", "costs.css", "layout.js")
#: Seconds after which the page is sent a sign of life, so that a browser that has gone is noticed.
_PULSE = 15.0


class LineRow(TypedDict):
    """A line of the page. number: of the source, 0 for a line of ours.  parts: [text, style].  tips: of its hints."""

    number: int
    parts: list[tuple[str, str]]
    tips: list[str]


class ModelSheet(TypedDict):
    """One model. facts: the text of its lens.  graph: the pages of `mase/graph`."""

    title: str
    line: int
    facts: str
    graph: list[Graph]
    costs: CostTable
    passes: Pipeline


class Sheet(TypedDict):
    """The part of a file that the page shows. state, message, stale: of its last trace.

    unshown: the models that are not shown, and why.
    edited: the positions are those of another text, so that there are no hints.  gone: the file no longer exists.
    """

    version: str
    file: str
    path: str
    state: str
    message: str
    stale: bool
    lines: list[LineRow]
    problems: list[ProblemRow]
    unshown: list[str]
    models: list[ModelSheet]
    edited: bool
    gone: bool


def view(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, readable=True, help="A model file.")],
    target: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the page to this file; - is standard output.")
    ] = None,
    passes: Annotated[
        list[str] | None, typer.Option("--pass", help="A pass to apply first, e.g. \"quantize(default='fixed(8,4)')\".")
    ] = None,
    model: Annotated[str | None, typer.Option(help="The class to trace.", autocompletion=complete_models)] = None,
    inputs: Annotated[list[str] | None, typer.Option("--input", help="An input, e.g. 'x: f32[1,3,224,224]'.")] = None,
    named: Annotated[
        str | None, typer.Option("--set", help="A named set of inputs, as in `# mase[small]: ...`.")
    ] = None,
    python: Annotated[str | None, typer.Option(help="The interpreter that the model runs in.")] = None,
    daemon: Annotated[bool, typer.Option("--daemon/--no-daemon", help="Query a running daemon.")] = True,
    opened: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True,
) -> None:
    """Show a file in a browser: shapes beside the source, graph, costs, problems and passes.

    With -o the page is one file that needs nothing else, e.g. to attach it to a pull request; it contains the source.
    Without -o the page follows saves until the command is interrupted.

    Examples:

        mase-server view net.py

        mase-server view net.py -o net.html --pass "quantize(default='fixed(8,4)')"

    Exit status: 0 shown, 1 the file has errors or the page cannot be written, 2 wrong usage.
    """
    attach = daemon and not passes
    asked = Asked((file,), False, False, model, tuple(inputs or ()), python, attach, named)
    with _ended_by_mistakes():
        sheets = SheetRequest(parse_steps(passes) if passes else [])
        if target is None:
            _serve_until_interrupted(asked, sheets, opened)
            return
        subject = Subject(file, asked.inputs, python, attach, model, named)
        report, sheet = ask_daemon(subject, lambda path: sheets.request(file))
        if lacks_set([report], named):
            raise typer.Exit(2)
        page = make_page(sheet)
        if str(target) == "-":
            say(page)
        else:
            target.write_text(page, "utf-8")
    for problem in report.problems:
        if problem.severity == "error":
            say(problem_line(report.file, problem).plain, error=True)
    raise typer.Exit(report.status)


@contextmanager
def _ended_by_mistakes() -> Iterator[None]:
    try:
        yield
    except UsageError as error:
        say(f"error: {error}", error=True)
        raise typer.Exit(2) from None
    except Refused as error:
        say(f"error: {error}", error=True)
        raise typer.Exit(error.status) from None
    except OSError as error:
        say(f"error: {describe_os_error(error)}", error=True)
        raise typer.Exit(1) from None


# What the page shows.


@dataclass(slots=True)
class SheetRequest:
    """Asks a daemon for the sheet of a file. steps: passes to apply, once; the daemon keeps them for later traces."""

    steps: list[Step]

    def request(self, file: Path) -> Talk[tuple[Report, Sheet]]:
        """The report on an open file, and the sheet with all its models."""
        path = canonical_path(file)
        for step in self.steps:
            yield "mase/applyPass", {"path": path, "pass": step.name, "arguments": dict(step.arguments)}
        self.steps = []
        report = yield from request_report(file, passes=True)
        models = []
        for facts in report.models:
            of_model = {"path": path, "model": facts["title"]}
            costs = yield "mase/costTable", of_model
            passes = yield "mase/pipeline", of_model
            graph = yield from request_graph({**of_model, "count": _AT_ONCE, "columns": _COLUMNS})
            models.append(
                ModelSheet(
                    title=facts["title"],
                    line=facts["line"] if facts["path"] == path else 0,
                    facts=_tell_facts(facts),
                    graph=graph,
                    costs=costs,
                    passes=passes,
                )
            )
        return report, make_sheet(report, models)


def make_sheet(report: Report, models: list[ModelSheet]) -> Sheet:
    """Convert a report to what the page shows."""
    tips: dict[int, list[tuple[int, str]]] = {}
    for site in report.sites(NAMES) if report.same_text else ():
        if has_hint(site):
            tips.setdefault(site.end_line, []).append((site.end_column, _tell_site(site)))
    styles = python_styles(source_text(report))
    lines = [
        LineRow(
            number=line.number,
            parts=[(text, "hint" if style == HINT else style) for text, style in split_by_style(line, spans)],
            tips=[text for _, text in sorted(tips.get(line.number, ()))],
        )
        for line in annotated_lines(report)
        for spans in [styles.get(line.number, ())]
    ]
    status = report.told["status"]
    return Sheet(
        version=__version__,
        file=Path(report.file).name,
        path=report.path,
        state=report.state,
        message="" if status is None else status["message"],
        stale=bool(status and status["stale"]),
        lines=lines,
        problems=[problem_map(problem) for problem in report.problems],
        unshown=[f"{each['name']} is not shown. {each['why']} {each['step']}".rstrip() for each in report.unshown],
        models=models,
        edited=not report.same_text,
        gone=False,
    )


def _tell_facts(facts: ModelFacts) -> str:
    return lens_text(cast("ModelView", SimpleNamespace(**facts)), False)


def _tell_site(site: Site) -> str:
    """All values of a place in full, each with its model and its modules."""
    name = f"{site.name}: " if site.name else ""
    rows = [f"{name}{label_values([each.value for each in site.values], 10_000)}"]
    for each in site.values:
        scopes = ", ".join(scope for scope in each.scopes[:3] if scope) or "the model itself"
        more = f" and {len(each.scopes) - 3} more" if len(each.scopes) > 3 else ""
        times = f", {each.count} times" if each.count > 1 else ""
        rows.append(f"{each.model}: in {scopes}{more}{times}")
    return "\n".join(rows)


# The page, and serving it.


def make_page(sheet: Sheet | None) -> str:
    """The page as HTML: with a sheet it is whole; without, it asks its server. FileNotFoundError without its parts."""
    folder = find_data_folder("mase_client_vscode/dist/pages", "pages", "view.js")
    own, parts = ({name: (folder / name).read_text(encoding="utf-8") for name in names} for names in (_OWN, _PARTS))
    nonce = secrets.token_urlsafe(16)
    # A frame inherits the policy; `connect-src` is for the server's own sheets and events.
    policy = f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; img-src data: blob:"
    policy += "; worker-src blob:; base-uri 'none'; form-action 'none'" + ("" if sheet else "; connect-src 'self'")
    title = html.escape(f"{sheet['file']} - mase-server" if sheet else "mase-server")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style nonce="{nonce}" id="colours">{own["colours.css"]}</style>
<style nonce="{nonce}">{own["view.css"]}</style>
</head>
<body>
<script type="application/json" id="sheet">{_embed(sheet)}</script>
<script type="application/json" id="parts">{_embed(parts)}</script>
<script nonce="{nonce}" id="main">{_close_safely(own["view.js"])}</script>
</body>
</html>
"""


def _embed(value: Any) -> str:
    """JSON that can stand in an element of a page."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


def _close_safely(script: str) -> str:
    return script.replace("</script", "<\\/script")


def _serve_until_interrupted(asked: Asked, sheets: SheetRequest, opened: bool) -> None:
    with PageServer(make_page(None)).serving() as served:
        say(f"{served.address} shows {reveal(str(asked.files[0]))}; Ctrl-C ends")
        sys.stdout.flush()
        if opened:
            webbrowser.open(served.address)
        follow_files(Watch(asked, sheets.request, served.show))


class PageServer(ThreadingHTTPServer):
    """Serves one page on loopback to whoever knows its address, and tells it when there is a new sheet."""

    daemon_threads = True

    def __init__(self, page: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.page = page
        self.token = secrets.token_urlsafe(24)
        self.sheet: Sheet | None = None
        #: Counts the sheets, and wakes the threads that wait for one.
        self.number, self.changed = 0, threading.Condition()

    @property
    def address(self) -> str:
        """The address of the page."""
        return f"http://127.0.0.1:{self.server_port}/{self.token}/"

    @contextmanager
    def serving(self) -> Iterator[PageServer]:
        """Serve in a thread until the context ends."""
        with self:
            threading.Thread(target=self.serve_forever, daemon=True).start()
            try:
                yield self
            finally:
                self.shutdown()

    def show(self, found: list[tuple[Report, Sheet]], gone: list[Path]) -> None:
        """Show the newest sheet; while the file is gone, the last one says so."""
        sheet = found[0][1] if found else self.sheet
        with self.changed:
            self.sheet = None if sheet is None else {**sheet, "gone": bool(gone)}
            self.number += 1
            self.changed.notify_all()


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    server_version, sys_version = "mase-server", ""

    def do_GET(self) -> None:
        """Answer with the page, its sheet, or events that say that there is a newer one."""
        place = urlsplit(self.path).path.encode()
        known = f"/{self.server.token}/".encode()
        # Another name for this address would come from a page of somebody else.
        foreign = self.headers.get("Host") != f"127.0.0.1:{self.server.server_port}"
        if foreign or not hmac.compare_digest(place[: len(known)], known):
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        wanted = place[len(known) :]
        if wanted == b"":
            self._answer("text/html; charset=utf-8", self.server.page)
        elif wanted == b"sheet":
            self._answer("application/json", json.dumps(self.server.sheet))
        elif wanted == b"events":
            self._send_events()
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def log_message(self, *_: Any) -> None:
        """Log nothing: a request contains the token."""

    def _answer(self, kind: str, text: str) -> None:
        content = text.encode()
        self._send_head(kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _send_head(self, kind: str) -> None:
        self.send_response(HTTPStatus.OK)
        for name, value in {
            "Content-Type": kind,
            "Cache-Control": "no-store",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            "Cross-Origin-Resource-Policy": "same-origin",
        }.items():
            self.send_header(name, value)

    def _send_events(self) -> None:
        """One event for the present sheet, and one for each later one, until the browser goes."""
        self._send_head("text/event-stream")
        self.end_headers()
        seen = 0
        with suppress(ConnectionError):
            while True:
                with self.server.changed:
                    if self.server.number == seen:
                        self.server.changed.wait(_PULSE)
                    now = self.server.number
                self.wfile.write(f"data: {now}\n\n".encode() if now != seen else b": still there\n\n")
                self.wfile.flush()
                seen = now
