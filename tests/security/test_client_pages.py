"""What the extension's own text promises: no page takes HTML from a model, and no workspace names a program."""

import json
import re
from pathlib import Path

CLIENT = Path(__file__).parents[2] / "mase_client_vscode"
MANIFEST = json.loads((CLIENT / "package.json").read_text("utf-8"))
SOURCES = {str(each.relative_to(CLIENT / "src")): each.read_text("utf-8") for each in CLIENT.glob("src/**/*.ts")}
#: Ways by which a text becomes elements or code.
SINKS = (
    "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "srcdoc", "createContextualFragment",
    "DOMParser", "setHTMLUnsafe", "eval(", "new Function", "javascript:", "dangerouslySetInnerHTML", "import(",
)  # fmt: skip
#: Ways by which a page could reach anything else.
REACHES = ("fetch(", "XMLHttpRequest", "WebSocket", "EventSource", "sendBeacon", "window.open", "location.href =")


def holding(word):
    return sorted(name for name, text in SOURCES.items() if word in text)


def settings():
    sections = MANIFEST["contributes"]["configuration"]
    sections = sections if isinstance(sections, list) else [sections]
    return {name: each for section in sections for name, each in section["properties"].items()}


def test_no_text_becomes_elements_or_code():
    """The page of `mase-server view` alone has frames: documents of the built pages, without a word of a sheet."""
    assert len(SOURCES) > 60
    assert {word: holding(word) for word in SINKS if holding(word)} == {"srcdoc": ["view/page/frame.ts"]}
    assert "sheet" not in SOURCES["view/page/frame.ts"].lower()
    assert "this.element.srcdoc = documentOf(parts, name);" in SOURCES["view/page/frame.ts"]


def test_no_page_reaches_for_anything():
    """The page of `mase-server view` alone asks a server: its own, for what it shows."""
    pages = {name: text for name, text in SOURCES.items() if "/page/" in name}
    assert len(pages) > 10
    found = re.compile(rf"(?:{'|'.join(map(re.escape, REACHES))})[^)]*\)?")
    asked = {name: found.findall(text) for name, text in pages.items() if found.search(text)}
    assert asked == {"view/page/main.ts": ["EventSource('events')", "fetch('sheet')"]}


def test_all_pages_are_made_in_one_place_that_gives_them_their_policy():
    assert holding("webview.html =") == holding("createWebviewPanel(") == ["webview/panel.ts"]
    panel, page = SOURCES["webview/panel.ts"], SOURCES["webview/html.ts"]
    assert "webview.html = html({" in panel
    assert "randomBytes(16)" in panel
    assert "localResourceRoots: [this.folder]" in panel
    assert "\"default-src 'none'\", `script-src 'nonce-${nonce}'`, `style-src ${source}`" in page
    assert holding("unsafe-inline") == holding("unsafe-eval") == holding("enableCommandUris") == []
    assert {each for text in SOURCES.values() for each in re.findall(r"allow: \[(['\"].*?)\]", text)} <= {
        "'worker-src blob:', 'img-src blob:'"
    }


def test_a_notification_takes_no_text_of_others_for_a_link():
    said = [each for text in SOURCES.values() for each in re.findall(r"window\.show\w+Message\((\S+)", text)]
    assert len(said) > 6
    assert [each for each in said if not each.startswith(("inert(", "'"))] == []
    assert "tell(inert(" in SOURCES["verilog/commands.ts"]


def test_a_link_runs_only_commands_of_ours_that_are_named():
    commands = {each["command"] for each in MANIFEST["contributes"]["commands"]}
    assert holding("isTrusted: true") == holding("isTrusted = true") == holding("supportHtml") == []
    named = [each for text in SOURCES.values() for each in re.findall(r"enabledCommands: \[(.*?)\]", text)]
    assert len(named) == 2
    for name in re.findall(r"'([\w.]+)'", " ".join(named)):
        assert name.startswith("mase."), name
    assert commands >= {"mase.retrace", "mase.showLog"}


def test_the_extension_is_off_where_the_workspace_is_not_trusted_or_not_on_a_disk():
    assert MANIFEST["capabilities"]["untrustedWorkspaces"]["supported"] is False
    assert MANIFEST["capabilities"]["virtualWorkspaces"]["supported"] is False
    assert "if (!workspace.isTrusted) return this.become('untrusted')" in SOURCES["server.ts"]
    assert "trusted: workspace.isTrusted" in SOURCES["client.ts"]


def test_a_setting_that_names_a_program_is_the_machines():
    """Such a setting is not synchronised, and a workspace's own value is that of a workspace that is trusted."""
    programs = {name for name in settings() if re.search(r"interpreter|command|python|path|executable|token", name)}
    assert {"mase.interpreter", "mase.server.command"} <= programs
    assert {
        name: settings()[name]["scope"] for name in programs if settings()[name]["scope"] != "machine-overridable"
    } == {}


def test_no_setting_is_about_trust():
    assert [name for name in settings() if "trust" in name.lower()] == []
