"""The file of trusted folders: what somebody else can have written there trusts nothing."""

import json
import os
import re
from pathlib import Path

import pytest

from mase_server.daemon.trust import grant_trust, is_trusted, revoke_trust


@pytest.fixture
def state(tmp_path):
    grant_trust(tmp_path / "state", "/work")
    assert is_trusted(tmp_path / "state", "/work/project")
    return tmp_path / "state"


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_can_write_trusts_nothing(mode, state, caplog):
    (state / "trusted.json").chmod(mode)
    assert not is_trusted(state, "/work")
    assert not is_trusted(state, "/work")
    file = f"{state}/trusted.json"
    assert caplog.messages == [
        f"no folder is trusted: {file} can be written by other users (mode {mode:o}); remove it, or run "
        f"chmod go-w {file}, then grant trust again"
    ]


@pytest.mark.parametrize("mode", [0o770, 0o1777, 0o702])
def test_nor_does_one_in_a_folder_that_others_can_write_to(mode, state):
    state.chmod(mode)
    assert not is_trusted(state, "/work")


def test_nor_one_of_another_user(state, monkeypatch, caplog):
    if os.getuid() == 0:  # root's own files are everybody's to believe
        os.chown(state / "trusted.json", 12345, 12345)
    else:
        monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert not is_trusted(state, "/work")
    assert "belongs to user" in caplog.text


def test_a_grant_into_a_folder_of_others_fails_and_what_was_planted_there_is_not_blessed(state):
    (state / "trusted.json").write_text(json.dumps(["/work", "/planted"]))
    state.chmod(0o777)
    told = f"{state} can be written by other users (mode 777); remove it, or run chmod go-w {state}"
    for change in (grant_trust, revoke_trust):
        with pytest.raises(OSError, match=re.escape(told)):
            change(state, "/mine")
    assert not is_trusted(state, "/mine")
    assert state.stat().st_mode & 0o777 == 0o777


@pytest.mark.parametrize("entry", ["", ".", "..", "~", "*", "work", "/wor", "/work/..", "//", "/work\0", "\ud800"])
def test_an_entry_that_is_no_whole_path_trusts_no_more_than_it_says(entry, state):
    (state / "trusted.json").write_text(json.dumps([entry]))
    assert not is_trusted(state, "/work/project")
    assert not is_trusted(state, str(Path.cwd()))


@pytest.mark.parametrize(
    "text",
    ["", "null", "[", '{"/work": true}', "[" * 100_000, '"/work"', '["/work"] x', "\ufeff[]", "\x00"],
    ids=lambda text: repr(text[:12]),
)
def test_a_text_that_is_no_list_trusts_nothing(text, state):
    (state / "trusted.json").write_text(text)
    assert not is_trusted(state, "/work")


def test_a_file_that_is_none_trusts_nothing(state):
    (state / "trusted.json").unlink()
    (state / "trusted.json").mkdir()
    assert not is_trusted(state, "/work")
    with pytest.raises(OSError, match=r"trusted\.json"):
        grant_trust(state, "/work")


def test_bytes_that_are_no_text_trust_nothing(state):
    (state / "trusted.json").write_bytes(b'["/work\xff"]')
    assert not is_trusted(state, "/work")


def test_a_killed_writer_leaves_what_was_there(state, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        grant_trust(state, "/more")
    assert is_trusted(state, "/work")
