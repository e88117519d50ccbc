"""The reference: complete, as the generator makes it, with examples that run and links that lead somewhere."""

import doctest
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import mase_server
from docs import generate, json_output
from mase_server import passes
from mase_server.building import EMISSION_KEYS, ESTIMATE_KEYS, SIMULATION_KEYS, TOTAL_KEYS
from mase_server.cli import verilog
from mase_server.cli.applying import LAYER_KEYS, Applied, report_applied
from mase_server.cli.session import Outcome
from mase_server.cli.verilog import Made
from mase_server.daemon.api import API
from mase_server.daemon.events import TOPICS
from mase_server.lsp.features import COMMANDS, FEATURES
from mase_server.passes.registry import built_in
from mase_server.protocol.codes import ERRORS
from mase_server.protocol.snapshot import TRANSFORM_KEYS
from mase_server.simulation.building import count_cells

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
PAGES = generate.pages()
EXAMPLES = ROOT / "examples"
CLASSES_AND_FUNCTIONS = [
    *(f"library/{name}.md" for name in mase_server.__all__ if name not in ("__version__", "passes")),
    *(f"passes/{name}.md" for name in passes.__all__),
]
LINK = re.compile(r"\]\(([^)\s]+)\)")
BLOCK = re.compile(r"```python\n(>>> .*?)```", re.DOTALL)


def anchors(text):
    """The anchors of a page's headings, as code hosts make them: lower case, signs left out, spaces as hyphens."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def rows(text, heading):
    """The first cells of the table under a heading."""
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return [cell.strip("`") for cell in re.findall(r"^\| (`[^`]+`) \|", section, re.MULTILINE)]


def test_the_pages_in_the_tree_are_those_that_the_generator_makes():
    kept = {path.relative_to(REFERENCE).as_posix(): path.read_text("utf-8") for path in REFERENCE.rglob("*.md")}
    stale = [name for name in kept.keys() | PAGES.keys() if kept.get(name) != PAGES.get(name)]
    assert not stale, "run `make docs`"


def test_a_page_that_is_no_longer_made_is_taken_away(tmp_path):
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "Gone.md").write_text("gone")
    generate.write(tmp_path)
    assert {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.md")} == set(PAGES)


def test_pages_are_the_same_in_another_process():
    script = "from docs.generate import pages; print(pages())"
    runs = {
        subprocess.run(
            [sys.executable, "-c", script], cwd=ROOT, env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(runs) == 1


def test_every_public_name_has_a_page_and_no_page_is_of_anything_else():
    made = [name for name in PAGES if name.startswith(("library/", "passes/"))]
    assert sorted(made) == sorted(CLASSES_AND_FUNCTIONS)


@pytest.mark.parametrize("page", CLASSES_AND_FUNCTIONS)
def test_a_page_has_signature_summary_example_and_source(page):
    name = Path(page).stem
    text = PAGES[page]
    assert text.startswith(f"# {name}\n") or text.startswith(f"# passes.{name}\n")
    assert re.search(rf"^(passes\.)?{name}\(", text, re.MULTILINE)
    assert text.splitlines()[2].endswith(".")
    assert "\n## Example\n" in text
    assert "\n## Source\n" in text
    assert "(../README.md)" in text


@pytest.mark.parametrize("page", CLASSES_AND_FUNCTIONS)
def test_every_parameter_and_option_is_explained(page):
    untold = re.findall(r"^\| `\w+` \|.*\|  \|$|^\| `\w+` \|  \|$", PAGES[page], re.MULTILINE)
    assert untold == []


@pytest.mark.parametrize("page", CLASSES_AND_FUNCTIONS)
def test_the_parameters_are_those_of_the_callable(page):
    home = passes if page.startswith("passes/") else mase_server
    thing = getattr(home, Path(page).stem)
    code = thing.__init__.__code__ if isinstance(thing, type) and hasattr(thing.__init__, "__code__") else None
    code = code or getattr(inspect.unwrap(thing), "__code__", None)
    if code is None:
        pytest.skip("an exception class without a constructor of its own")
    count = code.co_argcount + code.co_kwonlyargcount
    wanted = [name for name in code.co_varnames[:count] if name != "self"]
    assert rows(PAGES[page], "Parameters") == wanted


@pytest.mark.parametrize("page", [page for page in PAGES if BLOCK.search(PAGES[page])])
def test_the_example_runs_as_it_stands_on_the_page(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "".join(BLOCK.findall(PAGES[page]))
    test = doctest.DocTestParser().get_doctest(text, {}, page, page, 0)
    report = []
    failed, attempted = doctest.DocTestRunner(optionflags=doctest.REPORT_NDIFF).run(test, out=report.append)
    assert attempted > 0
    assert failed == 0, "".join(report)


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page):
    for target in LINK.findall(PAGES[page].replace("```", "")):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = (REFERENCE / page).parent / path if path else REFERENCE / page
        assert file.is_file(), target
        assert not anchor or anchor in anchors(file.read_text("utf-8")), target


def test_every_page_is_reached_from_the_index():
    reached, todo = set(), ["README.md"]
    while todo:
        page = todo.pop()
        reached.add(page)
        for target in LINK.findall(PAGES[page]):
            found = (REFERENCE / page).parent.joinpath(target.partition("#")[0]).resolve()
            name = found.relative_to(REFERENCE).as_posix() if found.is_relative_to(REFERENCE) else ""
            if name in PAGES and name not in reached:
                todo.append(name)
    assert reached == set(PAGES)


@pytest.mark.parametrize("kind", ["MaseGraph", "MaseMetadata"])
def test_every_public_member_has_a_section(kind):
    cls = getattr(mase_server, kind)
    own = [name for base in cls.__mro__[:-1] for name in vars(base) if not name.startswith("_")]
    text = PAGES[f"library/{kind}.md"]
    assert [name for name in own if f"\n### {name}\n" not in text] == []


def test_a_name_of_another_page_is_a_link_and_a_pages_own_name_is_not():
    page = PAGES["library/MaseGraph.md"]
    assert "[`CustomOps`](../library/CustomOps.md)" in page
    assert "library/MaseGraph.md" not in page


# The tools


def test_the_command_line_page_has_every_option_that_help_shows():
    text = PAGES["cli.md"]
    for command in ("shapes", "passes", "apply", "trust", "lsp", "check", "graph", "verilog", "serve", "rpc", "sweep"):
        run = [sys.executable, "-m", "mase_server", command, "--help"]
        told = subprocess.run(run, cwd=ROOT, env={"COLUMNS": "200", "TERM": "dumb"}, capture_output=True, check=True)
        options = set(re.findall(r"(?<![\w-])--[a-z-]+", told.stdout.decode())) - {"--help", "--no-revoke", "--no-all"}
        section = text.partition(f"## mase-server {command}\n")[2].partition("\n## ")[0]
        assert set(re.findall(r"--[a-z-]+", section)) >= options, command
        assert set(re.findall(r"^\| `(--[a-z-]+)", section, re.MULTILINE)) <= options, command


def test_every_request_and_command_that_the_server_answers_is_on_its_page():
    answered = {name for name, _, _ in FEATURES if str(name).startswith("mase/")}
    headings = set(re.findall(r"^## (mase/\w+)$", PAGES["requests.md"], re.MULTILINE))
    assert headings == answered | {"mase/status"}
    assert {method.name for method in API} <= answered
    assert rows(PAGES["requests.md"], "Commands") == list(COMMANDS)


def test_the_parameters_of_requests_are_those_that_are_checked():
    for method in API:
        assert rows(PAGES["requests.md"], method.name) == list(method.params)


def test_every_shape_that_the_page_of_requests_names_stands_on_it():
    page = PAGES["requests.md"]
    types = set(re.findall(r"^### (\w+)$", page, re.MULTILINE)) | set(re.findall(r"^type (\w+) =", page, re.MULTILINE))
    written = {"Record", "Uint8Array"}
    code = re.sub(r"/\*\*.*?\*/|'[^']*'", "", " ".join(re.findall(r"```ts\n(.*?)```", page, re.DOTALL)))
    named = set(re.findall(r"\b[A-Z]\w+", code))
    assert named - written <= types
    for method in API:
        answer = page.partition(f"## {method.name}\n")[2].partition("\nThe answer is ")[2].partition("\n")[0]
        assert answer, method.name
        assert set(re.findall(r"\(#(\w+)\)", answer)) <= {name.lower() for name in types}
    assert rows(page, "Errors") == list(ERRORS)
    assert rows(page, "Events") == list(TOPICS)


def test_no_page_about_the_api_names_a_symbol_of_the_source_in_place_of_a_shape():
    texts = {name: (ROOT / "docs" / name).read_text() for name in ("rpc.md", "editors.md", "api.json")}
    texts |= {method.name: method.described()["description"] for method in API} | {"page": PAGES["requests.md"]}
    modules = "answers|snapshot|building|builds|daemon|passes|arguments|records|status"
    symbol = re.compile(rf"`(?:{modules})\.\w[\w.]*`|to_wire|_KEYS\b|_BLOB\b")
    assert {name: found for name, text in texts.items() if (found := symbol.findall(text))} == {}


def test_every_setting_of_the_extension_is_on_its_page():
    package = json.loads((ROOT / "mase_client_vscode" / "package.json").read_text())
    text = PAGES["settings.md"]
    for name, schema in package["contributes"]["configuration"]["properties"].items():
        assert f"| `{name}` | `{json.dumps(schema['default'])}` |" in text


def test_the_json_page_has_the_keys_that_the_command_prints(tmp_path):
    env = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "XDG_STATE_HOME": str(tmp_path / "state")}
    file = tmp_path / "model.py"
    file.write_text((EXAMPLES / "mlp.py").read_text() + "\n\n# mase: x: f32[1,\n")
    run = [sys.executable, "-m", "mase_server", "shapes", "--format", "json", "--python", sys.executable, str(file)]
    out = subprocess.run(run, cwd=ROOT, env=env, capture_output=True, check=False).stdout
    report = json.loads(out)
    assert list(json_output.FILE_KEYS) == list(report)
    assert list(report["models"][0]) == rows(PAGES["shapes-json.md"], "One of `models`")
    assert list(json_output.TENSOR_KEYS) == list(report["tensors"][0])
    assert list(json_output.VALUE_KEYS) == list(report["tensors"][0]["values"][0])
    assert list(json_output.PROBLEM_KEYS) == list(report["problems"][0])
    assert report["problems"][0]["code"] == "bad-comment"


# Passes


@pytest.mark.parametrize("each", built_in().values(), ids=lambda each: each.name)
def test_the_page_of_a_pass_has_every_argument_that_it_declares(each):
    page = PAGES[f"passes/{each.function.__name__}.md"]
    assert rows(page, "In editors and on the command line") == [argument.name for argument in each.all_arguments]
    assert f"mase-server apply FILE {each.name}" in page
    assert f"[`{each.name}`](passes/{each.function.__name__}.md)" in PAGES["passes.md"]


def test_the_json_page_of_apply_has_the_keys_that_it_prints():
    applied = Applied(Outcome("a.py", "/a.py", None, ()), code="")
    assert list(json_output.APPLIED_KEYS) == list(report_applied(applied))
    assert list(json_output.LAYER_KEYS) == list(LAYER_KEYS)
    assert {"nodes", "sqnr", "max_error"} < set(json_output.SUMMARY_KEYS)
    assert all(f"{key}" in TRANSFORM_KEYS["summary"] for key in json_output.SUMMARY_KEYS)


def test_the_json_page_of_verilog_has_the_keys_that_it_prints():
    made = Made(Outcome("a.py", "/a.py", None, ()), dict.fromkeys(EMISSION_KEYS))
    page = PAGES["verilog-json.md"]
    assert set(rows(page, "The object")) == set(verilog.report_hardware(made))
    assert set(rows(page, "`totals`, and `estimate` of an operation")) == {*ESTIMATE_KEYS, *TOTAL_KEYS}
    assert rows(page, "`synthesis`") == list(count_cells({}).to_wire())
    assert rows(page, "`simulation`") == list(SIMULATION_KEYS)
