"""Pages of the tools: command line, requests and settings of the editor, diagnostics, comments, JSON."""

from __future__ import annotations

import argparse
import inspect
import json
import re
from collections.abc import Iterator
from dataclasses import fields
from enum import EnumType
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from docs import json_output, passes, typescript
from docs.described import described
from docs.diagnostics import CODES
from docs.library import grid
from mase_server.cli.commands import build_app
from mase_server.cli.main import lsp_parser, run_lsp
from mase_server.daemon.api import API
from mase_server.daemon.status import END_STATES, STATES, Status
from mase_server.dtypes import SHORT
from mase_server.lsp.features import COMMANDS, FEATURES
from mase_server.lsp.listener import STATUS
from mase_server.lsp.workspace import SETTINGS
from mase_server.protocol.answers.files import NOTIFICATIONS, ErrorMap
from mase_server.protocol.codes import ERRORS
from mase_server.tracing.diagnosis import ignored
from mase_server.tracing.inputs import comments, text
from mase_server.tracing.inputs.spec import FILLS

_PACKAGE = Path(__file__).parents[1] / "mase_client_vscode" / "package.json"
_BACK = "[All reference pages](README.md)\n"


def tool_pages() -> dict[str, str]:
    """Every page that is not about the library, by file name."""
    makers = {
        "cli.md": _cli, "requests.md": _requests, "settings.md": _settings, "diagnostics.md": _diagnostics,
        "comments.md": _comments, "shapes-json.md": json_output.shapes, "apply-json.md": json_output.apply,
        "verilog-json.md": json_output.verilog,
        "passes.md": passes.index,
    }  # fmt: skip
    return {name: "\n".join([*maker(), _BACK]) for name, maker in makers.items()}


def _cli() -> Iterator[str]:
    yield f"# The command line\n\n{build_app().info.help}\n"
    registered = [each for each in build_app().registered_commands if each.callback is not None]
    commands = {each.name or each.callback.__name__: each.callback for each in registered}
    for name in sorted(commands.keys() - {"lsp"}):
        yield f"## mase-server {name}\n\n{inspect.getdoc(commands[name])}\n"
        yield grid(("option", "default", "meaning"), _typed(name, commands[name]))
    parser = lsp_parser()
    yield f"## {parser.prog}\n\n{parser.description} {described(run_lsp.__doc__).notes[0]}\n"
    yield grid(("option", "default", "meaning"), map(_parsed, _actions(parser)))


def _typed(command: str, callback: Any) -> Iterator[tuple[str, str, str]]:
    """A row for each parameter of a typer command."""
    made = typer.main.get_command(build_app()).commands[command]  # type: ignore[attr-defined]
    options = {each.name: [*each.opts, *each.secondary_opts] for each in made.params}
    hints = get_type_hints(callback, include_extras=True)
    for name, parameter in inspect.signature(callback).parameters.items():
        kind, info = get_args(hints[name]) if get_origin(hints[name]) is Annotated else (hints[name], None)
        choices = " or ".join(f"`{each.value}`" for each in kind) if isinstance(kind, EnumType) else ""
        is_argument = isinstance(info, typer.models.ArgumentInfo)
        several = "..." if get_origin(kind) is list else ""
        called = (info.metavar or f"{name.upper()}{several}") if is_argument else ", ".join(options[name])
        value = parameter.default
        default = "" if value in (parameter.empty, None, False, True) else f"`{getattr(value, 'value', value)}`"
        yield f"`{called}`", default, " ".join(filter(None, (info.help or "The folder.", choices and f"{choices}.")))


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    hidden = (argparse.SUPPRESS, None)
    return (each for each in parser._actions if each.help not in hidden and each.dest != "help")


def _parsed(action: argparse.Action) -> tuple[str, str, str]:
    choices = "|".join(action.choices or ())
    called = " ".join(filter(None, (action.option_strings[0], action.metavar or choices)))
    default = "" if action.default in (None, False) else f"`{action.default}`"
    return f"`{called}`", default, f"{action.help}"


def _requests() -> Iterator[str]:
    yield (
        "# Requests of the editor's protocol\n\n`mase-server lsp` speaks the Language Server Protocol (inlay hints, "
        "hovers, code lenses, diagnostics, quick fixes) and also answers these requests.\n\nA file is named by "
        "`uri`, or by `textDocument` as in the protocol, and a place by `position` in the present text; the server "
        "converts them to the `path`, `line` and `column` in the tables: an absolute path, and a place in the traced "
        "text, lines from 1, columns from 0 in Unicode code points. Parameters with a `?` are optional. The answer to "
        "missing, unknown or mistyped parameters is InvalidParams. Types are written as in TypeScript, and stand "
        "[below](#types); [api.json](../api.json) has the same as JSON schemas, with the version that introduced each "
        "method (`since`), and where one is going to end, the first version that may lack it (`until`).\n"
    )
    for method in API:
        yield f"## {method.name}\n\n{inspect.getdoc(method.function)}\n"
        rows = [(f"`{name}`", f"`{typescript.typed(kind)}`") for name, kind in method.params.items()]
        yield grid(("parameter", "type"), rows) if rows else "It has no parameters.\n"
        held = f", over MessagePack-RPC as `{method.answer}` of a map" if method.answer else ""
        yield f"The answer is {_type_linked(method.gives)}{held}.\n"
    served = {method.name for method in API}
    for name, handler, _ in FEATURES:
        if str(name).startswith("mase/") and name not in served:
            parameters, _, text = (inspect.getdoc(handler) or "").removeprefix(f"{name} ").partition(": ")
            yield f"## {name}\n\nOnly for editors, with `{parameters}`: {text}\n"
    yield from _status()
    yield "## Commands\n\nFor `workspace/executeCommand`.\n"
    rows = [_command(name, inspect.getdoc(command) or "") for name, command in COMMANDS.items()]
    yield grid(("command", "parameters", "effect"), rows)
    yield from _contract()
    yield (
        "## Initialization options\n\n`trusted` (true or false) says whether code of the workspace may run; an editor "
        "that does not send it gets a question once per folder. `interpreter` is the path of a Python, or a map from a "
        "folder's URI to one. The [settings](settings.md) may also be here.\n"
    )


def _command(name: str, text: str) -> tuple[str, str, str]:
    """The row of a command, from its docstring: `name {parameters}: effect`."""
    given, _, does = " ".join(text.split()).removeprefix(name).partition(": ")
    return f"`{name}`", f"`{given.strip()}`" if given.strip() else "", does[:1].upper() + does[1:]


def _type_linked(kind: Any) -> str:
    """A type, with a link to each record of it."""
    text = typescript.typed(kind).replace("[]", "\\[\\]")
    for record in typescript.records_in(kind):
        text = re.sub(rf"\b{record.__name__}\b", f"[{record.__name__}](#{record.__name__.lower()})", text)
    return text


def _contract() -> Iterator[str]:
    """Events, errors, and the types that everything above refers to."""
    events = {get_args(get_type_hints(kind)["topic"])[0]: kind for kind in NOTIFICATIONS["mase/event"]}
    yield "## Events\n\n`mase/subscribe` asks for them; each is the one parameter of a `mase/event`.\n"
    yield grid(("topic", "shape"), ((f"`{topic}`", _type_linked(kind)) for topic, kind in events.items()))
    yield (
        "`mase/error` tells of an error that belongs to no request, and `mase/dropped` why the daemon ends the "
        f"connection: {_type_linked(ErrorMap)} each.\n"
    )
    yield "## Errors\n"
    yield grid(("code", "what happened", "what to do"), ((f"`{code}`", *told) for code, told in ERRORS.items()))
    yield f"## Types\n\nA value is a `Value`:\n\n```ts\ntype Value = {typescript.value_type()};\n```\n"
    for name, kind in typescript.WORDS.items():
        yield f"```ts\ntype {name} = {typescript.union(kind)};\n```\n"
    for record in typescript.records_of((*typescript.api_records(), *events.values(), ErrorMap)):
        about, _, code = typescript.interface(record).partition(" */\n")
        shape = code.strip().removeprefix("export ")
        yield f"### {record.__name__}\n\n{about.removeprefix('/** ')}\n\n```ts\n{shape}\n```\n"


def _status() -> Iterator[str]:
    found = described(Status.__doc__)
    where = found.summary.removeprefix("One `mase/status`: ")
    yield f"## {STATUS}\n\nA notification from the server: {where} {' '.join(found.notes)}\n"
    known = {**found.entries, "uri": "of the file.", "state": f"{_states()}.", "message": "one sentence for people."}
    names = ["uri", *(each.name for each in fields(Status) if each.name != "path")]
    yield grid(("field", "meaning"), ((f"`{name}`", known.get(name, "")) for name in names))


def _states() -> str:
    return f"{', '.join(sorted(STATES - END_STATES))}; at the end one of {', '.join(sorted(END_STATES))}"


def _settings() -> Iterator[str]:
    properties = json.loads(_PACKAGE.read_text("utf-8"))["contributes"]["configuration"]["properties"]
    served = {f"mase.{setting.key}" for setting in SETTINGS}
    yield (
        "# Settings\n\nAn editor answers `workspace/configuration` for the section `mase` with these; other clients "
        "may send them as initialization options. A value of the wrong kind is logged, and the default stays.\n"
    )
    for title, wanted in (("Read by the server", True), ("Read by the VS Code extension alone", False)):
        rows = [_setting(name, schema) for name, schema in properties.items() if (name in served) == wanted]
        yield f"## {title}\n\n{grid(('setting', 'default', 'meaning'), rows)}"


def _setting(name: str, schema: dict[str, Any]) -> tuple[str, str, str]:
    text = schema.get("markdownDescription") or schema["description"]
    choices = f" One of {', '.join(schema['enum'])}." if "enum" in schema else ""
    return f"`{name}`", f"`{json.dumps(schema['default'])}`", text + choices


def _diagnostics() -> Iterator[str]:
    yield (
        "# Diagnostics\n\nEvery diagnostic has one of these codes; its message says what happened, to which value, "
        "where, and what to do next. If a correction is certain, there is a quick fix.\n"
    )
    yield grid(("code", "meaning"), ((f"[`{code}`](#{code})", text) for code, (text, _) in CODES.items()))
    yield from (f"## {code}\n\n{text}\n\n**Next:** {step}\n" for code, (text, step) in CODES.items())


def _comments() -> Iterator[str]:
    yield "# Comments\n\nA `# mase:` comment overrides everything that MASE finds otherwise.\n"
    yield f"{(inspect.getdoc(comments) or '').partition(chr(10) * 2)[2].replace(' (see text.py)', '')}\n"
    yield f"## Problems that are not told\n\n{(inspect.getdoc(ignored) or '').partition(chr(10) * 2)[2]}\n"
    yield f"## Inputs\n\n{(inspect.getdoc(text) or '').replace('the words of `FILLS`', 'the words below')}\n"
    yield "The setting `mase.inputs` and `mase-server shapes --input` take the same text.\n"
    yield "```python\n# mase: ids: i64[B=2, T=16] < 50257; mask: bool[B, T] ones; use_cache = False\n```\n"
    yield f"## How values are made\n\n{grid(('word', 'values'), ((f'`{word}`', told) for word, told in FILLS.items()))}"
    rows = ((f"`{short}`", f"`torch.{name}`") for name, short in SHORT.items())
    yield f"## Element types\n\n{grid(('short', 'torch'), rows)}"
