"""Every code that the source gives a diagnostic is explained, and nothing else is."""

import ast
import re
import signal
from pathlib import Path

from docs.diagnostics import CODES
from docs.generate import pages
from mase_server.cli.session import _UNSHOWN
from mase_server.daemon.death import how_it_ended
from mase_server.tracing.diagnosis.problems import _PHASES

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "mase_server"
#: What makes a problem, and which of its arguments is the code.
MAKERS = {
    "Problem": 6, "Complaint": 0, "Breach": 0, "at_class": 3, "NoEnvironment": 0, "NoInterpreter": 0, "Unusable": 0,
    "refuse": 1, "_build_explanation": 0, "_with_template": 2, "environment_problem": 1, "death_problem": 0,
    "Diagnostic": 3,
}  # fmt: skip
CODE = re.compile(r"[a-z]+(-[a-z]+)*")


def texts(node):
    """The codes that an expression may be: a constant, or either side of a choice."""
    if isinstance(node, ast.Constant):
        return {node.value} if isinstance(node.value, str) and CODE.fullmatch(node.value) else set()
    if isinstance(node, ast.IfExp):
        return texts(node.body) | texts(node.orelse)
    return set()


def assigned(tree):
    """Names of a module with what is assigned to them, tuples one by one."""
    found = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = zip(target.elts, node.value.elts, strict=True)
            for name, value in pairs:
                if isinstance(name, ast.Name):
                    found.setdefault(name.id, []).append(value)
    return found


def codes_of(tree):
    names = assigned(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        place = MAKERS.get(called)
        if place is None:
            continue
        given = [keyword.value for keyword in node.keywords if keyword.arg == "code"]
        given += node.args[place : place + 1] if not any(isinstance(each, ast.Starred) for each in node.args) else []
        given += [each for each in node.args[2:7] if any(isinstance(one, ast.Starred) for one in node.args)]
        for argument in given:
            values = names.get(argument.id, []) if isinstance(argument, ast.Name) else [argument]
            for value in values:
                yield from texts(value)


def used():
    found = set()
    for path in SOURCE.rglob("*.py"):
        found |= set(codes_of(ast.parse(path.read_text("utf-8"))))
    found |= {code for code, _, _ in _PHASES.values()}
    found |= {state.replace("_", "-") for state in _UNSHOWN}
    found |= {how_it_ended(status)[0] for status in (3 << 8, int(signal.SIGSEGV))}
    return found - {"error", "warning", "information", "hint"}


def test_every_code_of_the_source_is_explained_and_no_other():
    assert used() == set(CODES)


def test_the_search_finds_codes_however_they_are_given():
    tree = ast.parse(
        'A, B = "first-code", "second-code"\n'
        'late = "third" if x else "fourth"\n'
        'Complaint(A, text); Complaint(B, text); Problem(file, 1, 0, 2, 0, "error", late, text)\n'
        'at_class(path, None, "warning", "fifth-code", text); other("no-code")\n'
        'Problem(file, *span, "error", "sixth-code", text); Problem(a, 1, 0, 1, 0, "error", code="seventh")\n'
    )
    found = set(codes_of(tree)) - {"error", "warning"}
    assert found == {"first-code", "second-code", "third", "fourth", "fifth-code", "sixth-code", "seventh"}


def test_a_code_has_a_meaning_a_next_step_and_a_section():
    page = pages()["diagnostics.md"]
    assert [text for texts in CODES.values() for text in texts if not text.endswith(".")] == []
    sections = {code: f"\n## {code}\n\n{meaning}\n\n**Next:** {step}\n" for code, (meaning, step) in CODES.items()}
    assert [code for code, section in sections.items() if section not in page] == []


def test_settings_that_a_next_step_names_exist():
    settings = (ROOT / "mase_client_vscode" / "package.json").read_text()
    named = {name for _, step in CODES.values() for name in re.findall(r"`(mase\.[\w.]+)`", step)}
    commands = {"mase.retrace", "mase.restart"}
    assert {name for name in named - commands if f'"{name}"' not in settings} == set()


def test_codes_are_listed_in_order():
    assert list(CODES) == sorted(CODES)
