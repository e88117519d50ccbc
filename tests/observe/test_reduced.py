"""What a report is freed of before anybody sees it."""

import pytest

from mase_server.telemetry.reduced import Reduced, describe_settings

ENVIRONMENT = {
    "HF_TOKEN": "canary-token-1", "MY_PASSWORD": "canary.pass", "USER": "jolanda", "AUTH_KIND": "yes",
}  # fmt: skip


@pytest.fixture
def reduced():
    return Reduced(["/home/jolanda/work", "/srv/models"], ENVIRONMENT, "/home/jolanda")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/home/jolanda/work/a/net.py", "(workspace 1)/a/net.py"),
        ("/srv/models/net.py", "(workspace 2)/net.py"),
        ("/home/jolanda/.cache/x", "~/.cache/x"),
        ("/tmp/mase-jolanda/x", "/tmp/mase-(user)/x"),
        ("JOLANDA said so", "(user) said so"),
        ("jolandas", "jolandas"),
        ("it was canary-token-1.", "it was (hidden)."),
        ("canary.pass", "(hidden)"),
        ("yes", "yes"),
        ("https://me:word@host/simple", "https://(hidden)@host/simple"),
        ("hf_abcdefghijkl", "(hidden)"),
        ("ghp_0123456789abcdef", "(hidden)"),
        ("0123456789abcdef0123456789abcdef01234567", "(hidden)"),
        ("Python 3.11.7, torch 2.13.0+cpu", "Python 3.11.7, torch 2.13.0+cpu"),
        ("number_of_elements_in_the_longest_row", "number_of_elements_in_the_longest_row"),
    ],
)
def test_a_text_names_nobody(reduced, text, expected):
    assert reduced.text(text) == expected


def test_one_workspace_has_no_number_and_the_root_is_none():
    assert Reduced(["/w"], {}, "/").text("/w/a /b") == "(workspace)/a /b"
    assert Reduced(["/"], {}, "/").text("/w/a") == "/w/a"


def test_values_are_reduced_inside_and_what_a_key_calls_secret_is_left_out(reduced):
    given = {"path": "/srv/models/x", "api_key": "plain", "inner": [{"/srv/models": 3}, None, True, object()]}
    expected = {"path": "(workspace 2)/x", "api_key": "(hidden)", "inner": [{"(workspace 2)": 3}, None, True, "object"]}
    assert reduced.value(given) == expected


CANARY = "canary_0815"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"runMain": False, "limits": {"seconds": 5}}, {"limits.seconds": 5, "runMain": False}),
        ({"interpreter": f"/home/{CANARY}/net/.venv/bin/python"}, {"interpreter": ".../.venv/bin/python"}),
        ({"server": {"command": ["/opt/x/env", f"TOKEN={CANARY}"]}}, {"server.command": "2 words, the first is env"}),
        ({"inputs": {CANARY: "x: f32[1]"}}, {"inputs": "1 entry"}),
        ({"pipelines": {CANARY: ["prune()"], "b": []}}, {"pipelines": "2 entries"}),
        ({"log": {"level": "debug"}, "trace": {"server": CANARY}}, {"log.level": "debug", "trace.server": "set"}),
        ({"verilog": {"precision": "fixed(8,4)"}}, {"verilog.precision": "fixed(8,4)"}),
        ({"verilog": {"precision": CANARY}}, {"verilog.precision": "set"}),
        ({"unheard": CANARY, "of": [CANARY], "empty": "", "none": None}, {"unheard": "set", "of": "set"}),
        ({"inputs": 3.5, "pipelines": CANARY, "server.command": []}, {"inputs": 3.5, "pipelines": "11 entries"}),
    ],
)  # fmt: skip
def test_settings_tell_numbers_and_of_texts_only_their_kind(settings, expected):
    assert describe_settings(settings) == expected
