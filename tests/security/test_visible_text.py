"""Hostile names and errors, through every way out: prompts, terminals, reports, drawings, pages, emitted hardware.

The folder, the file, the class, a layer, a key and the errors of one workspace hold what steers a terminal, turns a
line round, ends it, is not seen, or is a link. Nothing of it may arrive but as text that can be read.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import unicodedata
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest
import pytest_asyncio
from editing import Editor, capabilities
from hostile import SERVER
from hypothesis import example, given
from hypothesis import strategies as st
from lsprotocol import types as lsp
from markdown_it import MarkdownIt

from mase_server import visible
from mase_server.daemon.trust import is_trusted
from tests.cli.in_process import Warm, call

in_order = pytest.mark.asyncio(loop_scope="module")

#: A title of a terminal, a link of one, colours in one byte, line ends, marks of direction, what nobody sees, tags.
CONTROLS = "\x1b]0;owned\x07\x1b]8;;http://evil.example\x07\x9b31m\r\n\x0b\x0c\x85\u2028\u2029"
UNSEEN = "\u202e\u2066\u061c\u200b\u200d\u2060\ufeff\u00ad\u3164\u034f\U000e0041"
LINKS = "[Trust](command:mase.restart) ![i](http://evil.example/i) https://evil.example <img src=x onerror=alert(1)>"
HOSTILE = f'A{CONTROLS}B{UNSEEN}C {LINKS} `code` | */ endmodule `include "/etc/passwd" // \\'
#: A key that a hint has room for.
SHORT = "k\x1b]0;\n\u202e"
#: A folder's and a file's name: no slash, and at most 255 bytes.
NAME = f"A{CONTROLS.replace('/', '')}{UNSEEN}[Trust](command:mase.restart)"
MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable("table")
#: Letters and signs that people write, all of which have to stay as they are.
READABLE = (
    "Größe",
    "模型",
    "नमस्ते",
    "می\u200cخواهم",  # noqa: RUF001
    "שלום",
    "Ελληνικά",
    "한국어",
    "⚠\ufe0f",
    "λ → ∞",
    "a\u00a0b　c",
    "C:\\new",
)

MODEL = f"""\
from collections import OrderedDict
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(OrderedDict({{{HOSTILE.replace(".", "")!r}: nn.Linear(4, 4)}}))

    def forward(self, x):
        y = self.body(x)
        told = {{{HOSTILE!r}: y}}
        said = {{{SHORT!r}: y}}
        return y

Net.__name__ = {HOSTILE!r}

if __name__ == "__main__":
    Net()(torch.zeros(3, 4))
"""
BROKEN = f"""\
import torch
from torch import nn

class Broken(nn.Module):
    def forward(self, x):
        raise RuntimeError({HOSTILE!r} * 2)

if __name__ == "__main__":
    Broken()(torch.zeros(3, 4))
"""


def dangers(text, allowed="\n\t"):
    """What of a text people do not see as it is; by Unicode's own categories, so that no code of ours decides."""
    hidden = {"Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp"}
    unseen = {"\u3164", "\u034f", "\u115f", "\u1160", "\uffa0", "\u2800"}
    found = (each for each in text if unicodedata.category(each) in hidden or each in unseen)
    return sorted({f"U+{ord(each):04X}" for each in found if each not in allowed})


def markdown_links(text):
    """What Markdown makes links, pictures or HTML of, but for links of ours; and addresses that stand in the open."""
    tokens = [each for block in MARKDOWN.parse(text) for each in (block, *(block.children or ()))]
    found = [each for each in tokens if each.type in ("link_open", "image", "html_inline", "html_block")]
    own = ("command:mase.showGraph?", "command:mase.showCosts?", "file://")
    others = [str(each.attrGet("href")) for each in found if not str(each.attrGet("href")).startswith(own)]
    # GitHub's kind makes links of these, where no backslash stands in them. A backslash before a "`" begins no code.
    outside = re.sub(r"(?<![\\`])(`+)(?!`).+?(?<!`)\1(?!`)|\]\([^)]*\)", "", text, flags=re.DOTALL)
    return others + re.findall(r"(?:https?|ftp)://|\bwww\.|\w@\w", outside)


def texts_of(value):
    """All texts in what a protocol tells, but for URIs and what is data of ours."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, each in value.items():
            if key not in ("uri", "targetUri", "data", "arguments"):
                yield from texts_of(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from texts_of(each)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The workspace: a folder that says everything in its name, below one that says nothing."""
    folder = tmp_path_factory.mktemp("visible") / NAME
    folder.mkdir()
    (folder / "pyproject.toml").touch()
    (folder / f"m{NAME}.py").write_text(MODEL)
    (folder / f"b{NAME}.py").write_text(BROKEN)
    return folder


@pytest.fixture(scope="module")
def model(place):
    return place / f"m{NAME}.py"


@pytest.fixture(scope="module")
def broken(place):
    return place / f"b{NAME}.py"


@pytest.fixture(scope="module")
def mase(place, private_home):
    """Runs a command, as `subprocess.run` does."""
    warm = Warm()
    environment = {**os.environ, **private_home}
    yield lambda *words, **more: call(warm, words, environment | more, place)
    warm.close()


COMMANDS = {
    "shapes": lambda net, bad: ("shapes", net, bad),
    "shapes in colours": lambda net, bad: ("shapes", net, bad),
    "check": lambda net, bad: ("check", net, bad),
    "check for GitHub": lambda net, bad: ("check", net, bad, "--format", "github"),
    "graph": lambda net, bad: ("graph", net),
    "graph of Graphviz": lambda net, bad: ("graph", net, "--format", "dot"),
    "graph of Mermaid": lambda net, bad: ("graph", net, "--format", "mermaid"),
    "inputs": lambda net, bad: ("inputs", net),
    "apply": lambda net, bad: ("apply", net, "quantize", "default=fixed(8,4)", "--show", "code"),
    "apply to what fails": lambda net, bad: ("apply", bad, "quantize", "default=fixed(8,4)"),
    "verilog": lambda net, bad: ("verilog", net),
    "verilog of what fails": lambda net, bad: ("verilog", bad),
    "doctor": lambda net, bad: ("doctor", net.parent, "--python", sys.executable),
    "workers": lambda net, bad: ("workers", net.parent),
    "trust": lambda net, bad: ("trust", net.parent),
    "trust taken back": lambda net, bad: ("trust", net.parent, "--revoke"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_steers_the_terminal(mase, model, broken, name):
    colours = {"FORCE_COLOR": "1"} if "colours" in name else {}
    done = mase(*COMMANDS[name](model, broken), **colours)
    for text in (done.stdout, done.stderr):
        ours = re.sub(r"\x1b\[[\d;]*m", "", text) if colours else text
        assert dangers(ours) == []
    assert "owned" in done.stdout + done.stderr, "nothing of the names was told"


@pytest.mark.parametrize("words", [("check", "--format", "json"), ("shapes", "--format", "json")])
def test_data_for_programs_is_visible_and_reads_back(mase, model, broken, words):
    command, *options = words
    done = mase(command, model, broken, *options)
    assert dangers(done.stdout) == []
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert {model.name, broken.name} <= {Path(text).name for text in texts_of(told)}


def test_messages_of_sarif_are_visible_and_its_places_are_uris(mase, model, broken):
    done = mase("check", model, broken, "--format", "sarif")
    assert dangers(done.stdout) == []
    run = json.loads(done.stdout)["runs"][0]
    assert run["results"]
    for result in run["results"]:
        assert dangers(result["message"]["text"]) == []
        uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        assert re.fullmatch(r"[A-Za-z0-9/._~%\-]+", uri)
        assert unquote(uri).endswith(broken.name)


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_graphviz_takes_its_graph_for_names(mase, model):
    text = mase("graph", model, "--format", "dot").stdout
    drawn = subprocess.run(["dot", "-Tsvg"], input=text, capture_output=True, text=True, check=True, timeout=60).stdout
    assert dangers(drawn) == []
    assert_inert_drawing(drawn)


def assert_inert_drawing(text):
    drawn = ElementTree.fromstring(text)
    kinds = {each.tag.rpartition("}")[2].lower() for each in drawn.iter() if isinstance(each.tag, str)}
    assert not kinds & {"script", "img", "image", "iframe", "a", "animate", "set"}
    names = [name.rpartition("}")[2].lower() for each in drawn.iter() for name in each.attrib]
    assert [name for name in names if name.startswith("on") or name == "href"] == []
    assert any("onerror=alert" in (each.text or "") for each in drawn.iter())


def test_a_drawing_is_inert(mase, model, tmp_path):
    target = tmp_path / "net.svg"
    assert mase("draw", model, "-o", target).returncode == 0
    text = target.read_text()
    assert dangers(text) == []
    assert_inert_drawing(text)


def test_emitted_hardware_is_names_and_comments_and_passes_lint(mase, model, tmp_path):
    target = tmp_path / "out"
    done = mase("verilog", model, "-o", target)
    assert done.returncode == 0, done.stderr
    for file in target.rglob("*"):
        if file.is_file():
            assert dangers(file.read_text()) == [], file
            assert re.fullmatch(r"[\w.-]+", file.name, re.ASCII), file
    assert markdown_links((target / "README.md").read_text()) == []
    if shutil.which("verilator"):
        subprocess.run(["make", "-C", target, "lint"], check=True, capture_output=True, timeout=300)


def test_a_report_is_text(mase, place, private_home, tmp_path):
    done = mase("report", "--folder", place, "-o", tmp_path / "report.zip")
    assert dangers(done.stdout + done.stderr) == []


# An editor


def plain_of(editor, told):
    """What the server told, as maps and lists."""
    return json.loads(json.dumps(told, default=editor.client.protocol._serialize_message))


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def editor(place, model, broken, private_home):
    links = ["mase.showGraph", "mase.showCosts"]
    options = {"trusted": True, "interpreter": sys.executable, "commandLinks": links}
    editor = Editor(place, options=options, can=capabilities(progress=True))
    await editor.client.start_io(*SERVER, "lsp", env={**os.environ, **private_home})
    await editor.initialize()
    for path in (model, broken):
        editor.open(path)
        await editor.end_state(path)
    yield editor
    editor.unread.clear()
    await editor.stop()


@in_order
async def test_cards_hold_no_links_and_nothing_unseen(editor, model):
    for place in ((4, 6), (9, 22), (10, 8), (11, 10), (12, 10)):
        card = (await editor.hover(model, *place)).contents.value
        assert dangers(card) == []
        assert markdown_links(card) == []


@in_order
async def test_hints_and_lenses_are_visible(editor, model):
    hints = [*(await editor.hints(model)).values()]
    titles = [title for titles in (await editor.lenses(model)).values() for title in titles]
    assert any(r"\x1b]0;" in each for each in hints)
    assert titles
    assert [each for text in (*hints, *titles) for each in dangers(text, "")] == []


@in_order
async def test_errors_are_visible(editor, broken):
    items = (await editor.diagnostics(broken)).items
    assert any("owned" in each.message for each in items)
    assert [danger for each in items for danger in dangers(each.message)] == []


@in_order
async def test_what_pages_are_told_is_visible(editor, model):
    """Pages of the extension put it into elements as text; `test_client_pages` holds them to that."""
    for method in ("mase/graph", "mase/costs", "mase/inputs", "mase/choices", "mase/draw"):
        told = await editor.request(method, {"uri": model.as_uri()})
        plain = plain_of(editor, told)
        names = [each for each in texts_of(plain) if "owned" in each and not each.startswith(str(model.parent))]
        assert names, method
        assert [danger for each in names for danger in dangers(each)] == [], method


@in_order
async def test_states_and_progress_are_visible(editor, broken):
    await editor.command("mase.retrace", broken.as_uri())
    status = await editor.expect("mase/status", lambda told: told.state == "failed")
    assert dangers(status.message) == []
    told = [each for name, each in editor.unread if name == lsp.PROGRESS]
    assert [danger for each in told for text in texts_of(plain_of(editor, each)) for danger in dangers(text)] == []


@in_order
async def test_the_refusal_of_an_unknown_model_is_no_link(editor, model):
    with pytest.raises(Exception, match="no model") as refused:
        await editor.request("mase/graph", {"uri": model.as_uri(), "model": "[x](command:mase.restart)\x1b"})
    assert dangers(str(refused.value)) == []
    assert "](" not in str(refused.value)


# The question for trust


async def question_for(folder, private_home, home=None):
    """What the person is asked of a folder."""
    editor = Editor(folder, options={})
    await editor.client.start_io(
        *SERVER, "lsp", env={**os.environ, **private_home, **({"HOME": str(home)} if home else {})}
    )
    await editor.initialize()
    path = folder / "net.py"
    editor.open(path, BROKEN)
    asked = await editor.expect(lsp.WINDOW_SHOW_MESSAGE_REQUEST)
    editor.unread.clear()
    await editor.stop()
    return asked


@pytest.mark.asyncio
async def test_the_question_names_the_folder_on_one_line_and_no_link(tmp_path, private_home):
    folder = tmp_path / NAME / ("x" * 200)
    folder.mkdir(parents=True)
    asked = await question_for(folder, private_home)
    assert dangers(asked.message, "") == []
    assert "](" not in asked.message
    assert len(asked.message) < 300
    assert "\\u202e" in asked.message or "…" in asked.message
    assert "home" not in asked.message


@pytest.mark.parametrize("where", ["home", "root of home", "shared"])
@pytest.mark.asyncio
async def test_the_question_warns_where_trust_reaches_far(tmp_path, private_home, where):
    folder = tmp_path / "project"
    folder.mkdir()
    home = {"home": folder, "root of home": folder / "me", "shared": tmp_path / "me"}[where]
    home.mkdir(exist_ok=True)
    if where == "shared":
        folder.chmod(0o1777)
    asked = await question_for(folder, private_home, home)
    words = {"home": "your home folder", "root of home": "Your home folder lies below it", "shared": "Other users"}
    assert words[where] in asked.message


@pytest.mark.parametrize("folder", ["/", "/tmp", "/var/tmp"])
def test_the_command_warns_of_the_root_and_of_shared_folders(mase, folder, private_home):
    done = mase("trust", folder)
    try:
        assert "warning: " in done.stderr
        assert ("root of the file system" if folder == "/" else "Other users") in done.stderr
    finally:
        mase("trust", folder, "--revoke")
    assert not is_trusted(Path(private_home["XDG_STATE_HOME"]) / "mase-server", folder)


def test_the_command_says_nothing_of_a_usual_project(mase, place):
    done = mase("trust", place)
    mase("trust", place, "--revoke")
    assert done.stderr == ""


@pytest.mark.asyncio
async def test_a_folders_name_is_decoded_once(tmp_path, private_home):
    """`%2e%2e` is a name, and no way to the folder above; a line end in a name is a part of it."""
    for name, other in (("%2e%2e", tmp_path), ("a\nb", tmp_path / "ab")):
        folder = tmp_path / name
        folder.mkdir()
        other.mkdir(exist_ok=True)
        editor = Editor(folder)
        await editor.client.start_io(*SERVER, "lsp", env={**os.environ, **private_home})
        await editor.initialize()
        for path, state in ((folder / "own.py", "failed"), (other / "strange.py", "untrusted")):
            editor.open(path, BROKEN)
            assert await editor.end_state(path) == state, path
        await editor.expect(lsp.WINDOW_SHOW_MESSAGE_REQUEST)
        editor.unread.clear()
        await editor.stop()


# The one module

TEXT = st.text(st.one_of(st.characters(), st.sampled_from(f"{CONTROLS}{UNSEEN}\n\t `[]()<>|*_#&:@-.1")), max_size=60)
JOINERS = "\u200c\u200d\ufe0f"


@given(TEXT)
@example(HOSTILE)
def test_what_is_revealed_holds_nothing_unseen(text):
    for shown, allowed in (
        (visible.reveal(text), ""),
        (visible.reveal_lines(text), "\n\t"),
        (visible.escape_code(text), ""),
    ):
        assert dangers(shown, f"{allowed}{JOINERS}") == []
    assert visible.reveal(visible.reveal(text)) == visible.reveal(text)


@given(st.text(st.characters(categories=["L", "N", "P", "S"], include_characters=" "), max_size=60))
def test_what_people_read_stays_as_it_is(text):
    text = "".join(each for each in text if not dangers(each) and each.isprintable())
    assert visible.reveal(text) == visible.reveal_lines(text) == text


@pytest.mark.parametrize("text", READABLE)
def test_every_script_stays_readable(text):
    assert visible.reveal(text) == text


@pytest.mark.parametrize(
    "text", ["a\u200cb", "a\u200d", "\u200d", "a\ufe0fb", "\ufe0f", "⚠\ufe0f\ufe0f", "می\u200c\u200cخ"]
)
def test_a_joiner_that_joins_nothing_is_shown(text):
    assert "\\u" in visible.reveal(text)


@given(TEXT)
def test_data_reads_back_as_it_was(text):
    told = visible.dump_json({text: [text]}, indent=1)
    assert json.loads(told) == {text: [text]}
    assert dangers(told, f"\n{JOINERS}") == []


@given(TEXT)
@example(HOSTILE)
def test_markup_reads_back_as_what_is_revealed(text):
    element = ElementTree.fromstring(f"<a b='{visible.escape_markup(text)}'>{visible.escape_markup(text)}</a>")
    assert (element.text or "") == visible.reveal_lines(text)


@given(TEXT)
@example(f"see https://evil.example www.evil.example me@evil.example {LINKS}")
def test_markdown_makes_no_link_of_a_text(text):
    for shown in (visible.escape_markdown(text), visible.escape_code(text)):
        assert markdown_links(f"a {shown} z") == []


@given(st.text(max_size=300), st.integers(3, 100))
def test_a_shortened_text_keeps_its_ends(text, limit):
    short = visible.shorten_middle(text, limit)
    assert len(short) <= limit or short == text
    assert short == text or (short[0] == text[0] and short[-1] == text[-1])
