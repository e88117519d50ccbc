"""Settings as clients send them."""

import json
import logging
from pathlib import Path
from types import SimpleNamespace

import pytest
from lsprotocol import types as lsp

from mase_server.daemon.status import FolderSettings
from mase_server.lsp.workspace import SETTINGS, Folders, Settings, parse_settings

PACKAGE_JSON = Path(__file__).parents[2] / "mase_client_vscode" / "package.json"


def test_nested_and_dotted_keys_mean_the_same():
    nested = {"hints": {"expressions": True}, "limits": {"seconds": 5, "memory": 0.5}}
    dotted = {"hints.expressions": True, "limits.seconds": 5, "limits.memory": 0.5}
    expected = Settings(FolderSettings(time_limit=5.0, memory_limit=1 << 29), expressions=True)
    assert parse_settings(nested, Settings()) == parse_settings(dotted, Settings()) == expected


def test_what_is_not_said_stays():
    base = Settings(FolderSettings(interpreter="/py", run_main=False), expressions=True)
    for section in (None, {}, {"interpreter": None}, {"interpreter": ""}, "nonsense", {"limits": 3}):
        assert parse_settings(section, base) == base


@pytest.mark.parametrize(
    ("section", "complaint"),
    [
        ({"runMain": "yes"}, "setting mase.runMain is 'yes': expected true or false; it is ignored"),
        ({"limits": {"seconds": -1}}, "setting mase.limits.seconds is -1: expected a number above 0; it is ignored"),
        ({"limits": {"memory": True}}, "setting mase.limits.memory is True: expected a number above 0; it is ignored"),
        ({"interpreter": 3}, "setting mase.interpreter is 3: expected the path of a Python interpreter; it is ignored"),
        ({"inputs": []}, None),
    ],
)
def test_a_value_of_the_wrong_kind_is_named_and_ignored(section, complaint, caplog):
    with caplog.at_level(logging.WARNING):
        assert parse_settings(section, Settings()) == Settings()
    assert [record.getMessage() for record in caplog.records][:1] == ([complaint] if complaint else caplog.messages[:1])
    assert caplog.records


def test_inputs_may_be_one_text_or_several():
    parsed = parse_settings({"inputs": {"Net": "x: f32[1]", "m/*.py": ["x: f32[1]", "y: i64[2]"]}}, Settings())
    assert parsed.daemon.inputs == {"Net": ("x: f32[1]",), "m/*.py": ("x: f32[1]", "y: i64[2]")}


def test_trust_cannot_be_set_by_a_setting():
    assert not parse_settings({"trusted": True, "daemon": {"trusted": True}}, Settings()).daemon.trusted


def test_the_extension_offers_only_settings_that_somebody_reads():
    offered = set(json.loads(PACKAGE_JSON.read_text())["contributes"]["configuration"]["properties"])
    client_only = {"mase.server.command", "mase.trace.server"}
    assert offered - client_only <= {f"mase.{setting.key}" for setting in SETTINGS}


def test_the_defaults_of_the_extension_are_those_of_the_server(caplog):
    """An editor sends them all; none may be complained about."""
    offered = json.loads(PACKAGE_JSON.read_text())["contributes"]["configuration"]["properties"]
    defaults = {key.removeprefix("mase."): setting["default"] for key, setting in offered.items()}
    assert parse_settings(defaults, Settings()) == Settings()
    assert caplog.messages == []


def test_settings_are_read_once_until_the_client_tells_others(tmp_path, caplog):
    """Each request asks for them several times: a wrong one is complained about once."""
    nothing = SimpleNamespace(paths=list)
    server = SimpleNamespace(documents=nothing, workspace=SimpleNamespace(folders={}), logs=None)
    folders = Folders(server, state_dir=tmp_path, trusted=False)
    folders.initialize(lsp.InitializeParams(lsp.ClientCapabilities(), initialization_options={"updateDelay": "soon"}))
    assert [folders.settings_of("/a").update_delay for _ in range(3)] == [40.0] * 3
    assert len(caplog.messages) == 1
    folders.told({"mase": {"updateDelay": 5}})
    assert folders.settings_of("/a").update_delay == 5.0
