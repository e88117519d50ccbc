"""The page about what goes wrong quotes what is really said, and its table is the status item's own."""

import re

from messages import CLIENT, ROOT, is_said, messages, of_python, of_typescript, pieces

PAGE = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")
#: A message in bold is one that a person meets.
QUOTES = re.findall(r"\*\*`([^`]+)`\*\*", PAGE)
TEXTS = messages()
STATUS = (CLIENT / "src" / "status.ts").read_text("utf-8")
SETTINGS = (CLIENT / "package.json").read_text("utf-8")


def test_the_page_quotes_messages():
    assert len(QUOTES) > 40
    assert all(pieces(quote) for quote in QUOTES)


def test_a_quoted_message_is_what_the_source_says():
    assert [quote for quote in QUOTES if not is_said(quote, TEXTS)] == []


def test_the_table_has_every_text_of_the_status_item_and_no_other():
    table = PAGE.partition("## The status item")[2].partition("\n\n`")[0]
    told = {
        text
        for row in table.splitlines()
        if row.startswith("| `")
        for text in re.findall(r"`([a-z ]+)`", row.split("|")[1])
    }
    known = set(re.findall(r"\btext: '([^']+)'", STATUS))
    assert told == known


def test_settings_and_commands_that_the_page_names_exist():
    named = set(re.findall(r"`(mase\.[\w.]+)`", PAGE))
    assert {name for name in named if f'"{name}"' not in SETTINGS} == set()
    titles = set(re.findall(r'"MASE: ([A-Z][\w ]+)"', PAGE))
    assert titles
    assert {title for title in titles if f'"title": "{title}"' not in SETTINGS} == set()


def test_defaults_that_the_page_names_are_those_of_the_settings():
    for name, default in re.findall(r"`(mase\.[\w.]+)` \((\d+) by default\)", PAGE):
        assert re.search(rf'"{re.escape(name)}": {{[^}}]*"default": {default},', SETTINGS), name


def test_texts_are_read_as_the_languages_have_them():
    assert list(of_python('f"{a} has no {b}. " "Install it"\n')) == [
        "… has no …. Install it",
        " has no ",
        ". Install it",
    ]
    assert list(of_python('"no daemon serves {}"\n')) == ["no daemon serves …"]
    assert list(of_typescript("say('it\\'s'); say(`ended ${count} times`)")) == ["it\\'s", "ended … times"]


def test_a_quotation_has_to_be_whole_and_in_order():
    texts = ["The code ended with … after … s"]
    assert is_said("The code ended with … after …", texts)
    assert not is_said("after … The code ended", texts)
    assert not is_said("The code ended at …", texts)
