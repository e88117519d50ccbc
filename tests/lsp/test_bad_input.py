"""What a person may save by mistake, in a real server with real workers: one clear diagnostic, nothing else lost.

Every case starts from a file that was good: it is broken, looked at, and mended again, beside another open file.
"""

import re
import sys
from dataclasses import dataclass

import pytest
import pytest_asyncio
from editing import Editor
from good_net import GOOD, SEEN, by_name
from lsprotocol import types as lsp
from patience import of_limit, scaled, share

pytestmark = pytest.mark.asyncio(loop_scope="module")

SERVER = (sys.executable, "-m", "mase_server", "lsp")
SECONDS = 4.5
MAIN = 'if __name__ == "__main__":\n    Net()(torch.randn(4, 8))\n'
STEP = "        return self.b(h)\n"
INIT = "        super().__init__()\n"
UNDER_MAIN = 'if __name__ == "__main__":'


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def editor(tmp_path_factory):
    """An editor with short limits, beside whose files one good file stays open."""
    folder = tmp_path_factory.mktemp("workspace")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        limit = scaled(SECONDS, share())
        editor = Editor(folder, options={"trusted": True, "interpreter": sys.executable, "limits.seconds": limit})
        editor.limit = limit
        await editor.start(*SERVER)
    editor.neighbour = folder / "neighbour.py"
    editor.open(editor.neighbour, GOOD)
    assert await editor.end_state(editor.neighbour) == "ready"
    yield editor
    await editor.stop()


@dataclass(frozen=True)
class Case:
    """old -> new: the mistake.  at: the text that the diagnostic's first line holds.  says: patterns of its message.

    shown: names whose hints stand then; stale: are they those of the last good text?
    """

    old: str
    new: str
    code: str
    at: str
    says: tuple[str, ...]
    shown: tuple[str, ...] = tuple(SEEN)
    stale: bool = True
    severity: lsp.DiagnosticSeverity = lsp.DiagnosticSeverity.Error
    state: str = "failed"


WARNING = lsp.DiagnosticSeverity.Warning
UP_TO_THERE = {"shown": ("x", "h"), "stale": False}
CASES = {
    "a syntax error": Case(
        "        return self.b(h)", "        return self.b(h", "syntax-error", "return self.b(h",
        (r"SyntaxError: '\(' was never closed\.", "traced again"), shown=("x", "h"),
    ),
    "a missing package": Case(
        "import torch\n", "import torch\nimport not_there\n", "missing-package", "import not_there",
        ("No module named 'not_there' in ", re.escape(sys.executable)),
        stale=False, severity=WARNING, state="ready",
    ),
    "a missing package of another name": Case(
        "import torch\n", "import torch\nfrom skimage.nowhere import x\n", "missing-package", "skimage.nowhere",
        ("-m pip install scikit-image$",), stale=False, severity=WARNING, state="ready",
    ),
    "a name that a module has not": Case(
        "from torch import nn\n", "from torch import nn\nfrom torch.nn import Linaer\n", "import-error", "Linaer",
        ("cannot import name 'Linaer' from 'torch.nn'",), stale=False,
    ),
    "an exception at import": Case(
        "import torch\n", "import torch\nx = 1 / 0\n", "import-error", "x = 1 / 0",
        ("Importing this file raised ZeroDivisionError: division by zero.", re.escape(UNDER_MAIN)), stale=False,
    ),
    "a constructor that raises": Case(
        INIT, f'{INIT}        raise ValueError("bad width")\n', "constructor-error", "raise ValueError",
        ("Constructing Net raised ValueError: bad width.", re.escape("`# mase: Net(...)`")),
    ),
    "a constructor without super": Case(
        INIT, "", "constructor-error", "self.a = nn.Linear", (r"call `super\(\).__init__\(\)` first",),
    ),
    "a constructor with a typing error": Case(
        "nn.Linear(width, 3)", "nn.Linaer(width, 3)", "attribute-error", "nn.Linaer", ("Did you mean `Linear`",),
    ),
    "a constructor that ends the program": Case(
        INIT, f"{INIT}        raise SystemExit(3)\n", "exited", "raise SystemExit", ("SystemExit: 3",),
    ),
    "a constructor that makes itself": Case(
        INIT, f"{INIT}        self.inner = Net()\n", "recursion", "self.inner = Net()",
        (r"Net.__init__ -> Net.__init__", "needs a case that ends it"),
    ),
    "an endless loop at import": Case(
        MAIN, f"while True:\n    pass\n{MAIN}", "time-limit", "while True:|    pass",
        ("had run for 3 s without calling a model when it was stopped here", "mase.runMain", "mase.limits.seconds"),
        stale=False,
    ),
    "an endless loop before the classes": Case(
        "import torch\n", "import torch\nwhile True:\n    pass\n", "time-limit", "while True:|    pass",
        (re.escape(UNDER_MAIN),),
    ),
    "an endless loop in main": Case(
        MAIN, f"def main():\n    while True:\n        pass\n\n\n{UNDER_MAIN}\n    main()\n", "time-limit",
        "    while True:|        pass", ("To leave this part out, turn the setting mase.runMain off",),
        stale=False, severity=WARNING, state="ready",
    ),
    "an endless loop in the constructor": Case(
        INIT, f"{INIT}        while True:\n            width += 1\n", "time-limit",
        "while True:|width += 1", ("If it never ends, fix it",),
    ),
    "an endless loop in forward": Case(
        STEP, f"        while True:\n            h = h + 1\n{STEP}", "time-limit", "while True:|h = h + 1",
        (r"Tracing took longer than 4.5 s and was stopped, at line 1[34] of .* in forward", "mase.limits.seconds"),
        state="crashed",
    ),
    "a layer of the wrong width": Case(
        "nn.Linear(width, 3)", "nn.Linear(17, 3)", "shape-mismatch", "return self.b(h)",
        (r"expects 17 features,\nbut the last dimension of `h` f32\[B=4, 16\] is 16\.",), **UP_TO_THERE,
    ),
    "a value that only a run with numbers knows": Case(
        STEP, f"        n = int(self.table.weight[0].argmax())\n        h = h[:, :n]\n{STEP}", "value-dependent",
        "n = int(", ("needs the value of a tensor", "too big", re.escape("`# mase: Net(...)`")),
        **UP_TO_THERE, severity=WARNING, state="ready",
    ),
    "an exception in forward": Case(
        STEP, f'        raise KeyError("no such thing")\n{STEP}', "forward-error", "raise KeyError",
        ("Running Net raised KeyError: 'no such thing'",), **UP_TO_THERE,
    ),
    "endless recursion in forward": Case(
        STEP, f"        self(x)\n{STEP}", "recursion", "self(x)", ("Net.forward -> Net.forward\\.",), **UP_TO_THERE,
    ),
    "sys.exit in forward": Case(
        STEP, f"        raise SystemExit(3)\n{STEP}", "exited", "raise SystemExit", ("SystemExit: 3",), **UP_TO_THERE,
    ),
    "sys.exit at import": Case(
        MAIN, "raise SystemExit(3)\n", "exited", "raise SystemExit", ("SystemExit: 3", "below it is traced"),
        stale=False, severity=WARNING, state="ready",
    ),
    "os._exit in forward": Case(
        STEP, f"        import os; os._exit(4)\n{STEP}", "exited", "os._exit",
        ("ended its own process with exit status 4, at line 13 of .* in forward", "Raise an exception instead"),
        state="crashed",
    ),
    "os._exit at import": Case(
        MAIN, "import os; os._exit(4)\n", "exited", "os._exit", ("exit status 4", re.escape(UNDER_MAIN)),
        state="crashed",
    ),
    "KeyboardInterrupt in forward": Case(
        STEP, f"        raise KeyboardInterrupt\n{STEP}", "forward-error", "raise KeyboardInterrupt",
        ("KeyboardInterrupt",), **UP_TO_THERE,
    ),
    "KeyboardInterrupt at import": Case(
        MAIN, "raise KeyboardInterrupt\n", "import-error", "raise KeyboardInterrupt", ("KeyboardInterrupt",),
        stale=False,
    ),
    "a file that deletes itself": Case(
        MAIN, f"import os\nos.remove(__file__)\n{MAIN}", "refused", "os.remove(__file__)",
        ("Deleting '.*' was refused", re.escape(UNDER_MAIN)), stale=False, severity=WARNING, state="ready",
    ),
    "inputs that nobody can guess": Case(
        f"        h = self.a(x).relu()\n{STEP}\n\n{MAIN}",
        f'        if x.shape != (7, 11, 13):\n            raise open("{{}}".format(x))\n        h = self.a(x)\n{STEP}',
        "no-inputs", "class Net", ("No inputs were found for Net: ", "`# mase: x: TYPE"), shown=("x", "self.b(h)"),
        severity=WARNING,
    ),
    "arguments that nobody can guess": Case(
        f"width=16):\n{INIT}        self.a = nn.Linear(8, width)",
        f"secret: str):\n        width = int(secret)\n{INIT}        self.a = nn.Linear(8, width)",
        "no-arguments", "class Net", ("No constructor arguments were found for Net", "`# mase: Net"), severity=WARNING,
    ),
}  # fmt: skip
BEFORE = {
    "a value that only a run with numbers knows": GOOD.replace(
        INIT, f"{INIT}        self.table = nn.Embedding(500_000, 1000)\n"
    ),
}


async def is_stale(editor, path):
    lenses = await editor.client.text_document_code_lens_async(lsp.CodeLensParams(editor.id(path)))
    return any("stale" in lens.command.title for lens in lenses or ())


async def untouched(editor):
    """Is the other open file as it was, and did nobody trace it again?"""
    told = [one for method, one in editor.unread if method == "mase/status" and one.uri == editor.neighbour.as_uri()]
    again = [one for one in told if one.generation > 1]
    items = (await editor.diagnostics(editor.neighbour)).items
    return not again and not items and by_name(await editor.hints(editor.neighbour), GOOD) == SEEN


@pytest.mark.parametrize("name", CASES)
async def test_a_mistake_is_one_diagnostic_and_its_mending_brings_everything_back(editor, name):
    case, good = CASES[name], BEFORE.get(name, GOOD)
    path = editor.folder / f"{re.sub('[^a-z]', '_', name)}.py"
    editor.open(path, good)
    assert await editor.end_state(path) == "ready"
    assert by_name(await editor.hints(path), good) == SEEN
    bad = good.replace(case.old, case.new, 1)
    assert bad != good
    editor.retype(path, good, bad)
    editor.save(path, bad)
    assert await editor.end_state(path) == case.state

    [problem] = (await editor.diagnostics(path)).items
    assert (problem.code, problem.severity) == (case.code, case.severity), problem.message
    line = bad.split("\n")[problem.range.start.line]
    assert any(part in line for part in case.at.split("|")), (line, problem.message)
    for pattern in case.says:
        assert re.search(of_limit(pattern, SECONDS, editor.limit), problem.message), problem.message
    assert set(by_name(await editor.hints(path), bad)) >= set(case.shown)
    assert await untouched(editor)
    assert await is_stale(editor, path) == case.stale

    editor.retype(path, bad, good)
    editor.save(path, good)
    assert await editor.end_state(path) == "ready"
    assert not (await editor.diagnostics(path)).items
    assert by_name(await editor.hints(path), good) == SEEN
    assert not await is_stale(editor, path)
    editor.close(path)


NO_MODEL = {
    "an empty file": "",
    "a script": "print('hello')\n",
    "torch without a model": "import torch\nx = torch.nn.functional.relu(torch.zeros(3))\n",
    "only a loss": "from torch import nn\n\ncriterion = nn.CrossEntropyLoss()\n",
    "a class of another library": "from collections import UserDict\n\n\nclass Thing(UserDict):\n"
    "    def forward(self, x):\n        return x\n",
}


@pytest.mark.parametrize("name", NO_MODEL)
async def test_a_file_without_a_model_shows_no_diagnostic(editor, name):
    path = editor.folder / f"{re.sub('[^a-z]', '_', name)}.py"
    editor.open(path, NO_MODEL[name])
    assert await editor.end_state(path) == "no_model"
    assert not (await editor.diagnostics(path)).items
    assert await editor.hints(path) == {}
    editor.close(path)


async def test_a_model_that_is_taken_out_takes_its_hints_along(editor):
    path = editor.folder / "emptied.py"
    editor.open(path, GOOD)
    assert await editor.end_state(path) == "ready"
    text = "import torch\n"
    editor.retype(path, GOOD, text)
    editor.save(path, text)
    assert await editor.end_state(path) == "no_model"
    assert not (await editor.diagnostics(path)).items
    assert await editor.hints(path) == {}
    editor.close(path)


ENCODED = {
    "a byte order mark": "\ufeff" + GOOD,
    "carriage returns": GOOD.replace("\n", "\r\n"),
}


@pytest.mark.parametrize("name", ENCODED)
async def test_other_ways_to_write_the_same_text_are_no_mistake(editor, name):
    path = editor.folder / f"{name.replace(' ', '_')}.py"
    editor.open(path, ENCODED[name])
    assert await editor.end_state(path) == "ready"
    assert not (await editor.diagnostics(path)).items
    assert by_name(await editor.hints(path), ENCODED[name].replace("\r", "")) == SEEN
    editor.close(path)


async def test_a_shape_error_behind_carriage_returns_stands_at_its_place(editor):
    path = editor.folder / "broken_crlf.py"
    text = GOOD.replace("nn.Linear(width, 3)", "nn.Linear(17, 3)").replace("\n", "\r\n")
    editor.open(path, text)
    assert await editor.end_state(path) == "failed"
    [problem] = (await editor.diagnostics(path)).items
    start, end = problem.range.start, problem.range.end
    assert text.split("\r\n")[start.line][start.character : end.character] == "self.b(h)"
    editor.close(path)


async def test_a_mistake_in_a_last_line_without_an_end_is_shown_too(editor):
    path = editor.folder / "endless_line.py"
    editor.open(path, "import os\nfrom torch import nn\nnn.Linear(2, 2), os._exit(3)")
    assert await editor.end_state(path) == "crashed"
    [problem] = (await editor.diagnostics(path)).items
    assert (problem.code, problem.range.start.line, problem.range.end.line) == ("exited", 2, 2)
    editor.close(path)


NO_UTF8 = {
    "a binary file": (b"\x00\x01\x02\xff\xfe\x80" * 40, "not-text", 0, "This is a binary file, not text."),
    "latin letters": (
        b"# caf\xe9\n" + GOOD.encode(), "unknown-encoding", 0, "0xe9 here is not valid UTF-8. Save the file as UTF-8",
    ),
    "an encoding that is none": (
        b"# -*- coding: klingon -*-\n" + GOOD.encode(), "unknown-encoding", 0, "Python knows no encoding 'klingon'.",
    ),
}  # fmt: skip


def open_as_an_editor_reads_it(editor, path, data):
    """An editor that takes every file for UTF-8 shows U+FFFD for what is none."""
    path.write_bytes(data)
    editor._versions[path] = 1
    item = lsp.TextDocumentItem(path.as_uri(), "python", 1, data.decode("utf-8", "replace"))
    editor.client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))


@pytest.mark.parametrize("name", NO_UTF8)
async def test_what_is_no_text_is_told_where_it_begins(editor, name):
    data, code, line, message = NO_UTF8[name]
    path = editor.folder / f"{name.replace(' ', '_')}.py"
    open_as_an_editor_reads_it(editor, path, data)
    assert await editor.end_state(path) == "failed"
    [problem] = (await editor.diagnostics(path)).items
    assert (problem.code, problem.range.start.line) == (code, line)
    assert message in problem.message
    editor.close(path)


async def test_latin_letters_with_their_cookie_are_no_mistake(editor):
    path = editor.folder / "latin_with_cookie.py"
    data = f"# -*- coding: latin-1 -*-\nNAME = 'caf\xe9'\n{GOOD}".encode("latin-1")
    open_as_an_editor_reads_it(editor, path, data)
    assert await editor.end_state(path) == "ready"
    assert not (await editor.diagnostics(path)).items
    assert by_name(await editor.hints(path), data.decode("utf-8", "replace")) == SEEN
    editor.close(path)
