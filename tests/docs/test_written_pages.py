"""The hand-written pages: links and pictures are there, the index has every page, examples are as they say."""

import re
from pathlib import Path

import pytest

from mase_server.formats.registry import FORMATS, parse
from mase_server.tracing.inputs.text import parse_inputs as parse_inputs

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
HAND_WRITTEN = sorted(DOCS.glob("*.md"))
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", CONTRIBUTING, ROOT / "benchmarks" / "README.md", *HAND_WRITTEN]
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
LARGEST = {".png": 200_000, ".gif": 3_000_000}


def prose(page):
    """A page without its blocks and spans of code, in which brackets are no links."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.M | re.S)
    return re.sub(r"`[^`\n]*`", lambda span: "" if "](" in span.group() else span.group(), text)


def anchors(page):
    """The anchors that GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def targets(page):
    """(file, anchor) of every link that leads into the project."""
    for target in LINK.findall(prose(page)):
        if "://" not in target:
            path, _, anchor = target.partition("#")
            yield target, (page.parent / path).resolve() if path else page, anchor


def test_every_link_leads_to_a_file_and_a_heading():
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in PAGES
        for target, file, anchor in targets(page)
        if not file.exists() or (anchor and anchor not in anchors(file))
    ]
    assert broken == []


def test_every_page_is_in_the_index_which_the_readme_links():
    linked = {file for _, file, _ in targets(DOCS / "README.md")}
    assert {page.name for page in HAND_WRITTEN if page not in linked} == {"README.md"}
    assert DOCS / "README.md" in {file for _, file, _ in targets(ROOT / "README.md")}


def test_every_picture_is_shown_somewhere_and_none_is_too_large_for_a_page():
    shown = {file for page in PAGES for _, file, _ in targets(page)}
    pictures = [path for path in (DOCS / "images").iterdir() if path.suffix in LARGEST]
    assert {path.name for path in pictures if path not in shown} == set()
    assert {path.name for path in pictures if path.stat().st_size > LARGEST[path.suffix]} == set()


def test_a_picture_has_words_for_those_who_do_not_see_it():
    texts = [text for page in PAGES for text in re.findall(r"!\[([^\]]*)\]\(", prose(page))]
    assert texts
    assert all(len(text.split()) > 4 for text in texts)


def test_every_format_is_in_the_table_and_every_text_of_it_is_one():
    table = (DOCS / "formats.md").read_text("utf-8").partition("| text |")[2].partition("\n\n")[0]
    texts = re.findall(r"^\| `([^`]+)` \|", table, re.M)
    assert {parse(text).name for text in texts} == {kind.name for kind in FORMATS.values()}


def test_the_comments_that_the_page_about_inputs_shows_can_be_read():
    page = (DOCS / "inputs.md").read_text("utf-8")
    shown = re.findall(r"^# mase(?:\[\w+\])?: (?:Net\([^)]*\)(?:; |$))?(.*?)(?: {2,}#.*)?$", page, re.M)
    assert len([text for text in shown if text]) >= 5
    for text in filter(None, shown):
        assert parse_inputs(text)


def test_files_and_make_targets_that_contributors_are_told_of_are_there():
    text = CONTRIBUTING.read_text("utf-8")
    named = re.findall(r"`((?:mase_server|mase_client_vscode|tests|docs|rtl|examples)/[\w/.]+)`", text)
    existing = [path for path in named if "NAME" not in path]
    assert len(existing) > 30
    assert [path for path in existing if not (ROOT / path).exists()] == []
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M))
    assert set(re.findall(r"\bmake ([a-z-]+)`", text)) <= targets


@pytest.mark.parametrize("page", [ROOT / "ARCHITECTURE.md", DOCS / "decisions.md"], ids=lambda page: page.stem)
def test_files_that_a_page_about_the_code_tells_of_are_there(page):
    named = re.findall(r"`([a-z_]+/[\w/]+\.\w+)`", page.read_text("utf-8"))
    assert len(named) > 10
    assert [path for path in named if not (ROOT / path).exists() and not (ROOT / "mase_server" / path).exists()] == []


def test_the_walk_through_a_key_and_a_save_names_functions_and_classes_that_there_are():
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8").partition("## One key, or one save")[2].partition("## ")[0]
    names = {part for name in re.findall(r"`([A-Za-z_.]+)`", text) for part in name.split(".")}
    source = "\n".join(path.read_text("utf-8") for path in (ROOT / "mase_server").rglob("*.py"))
    assert len(names) > 40
    assert names - set(re.findall(r"^ *(?:async )?(?:def|class) (\w+)", source, re.M)) == set()
