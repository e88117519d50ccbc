"""Trust is the user's, per folder, and never comes from the workspace."""

import stat

from mase_server.daemon.trust import grant_trust, is_trusted, revoke_trust


def test_nothing_is_trusted_until_it_is_granted(tmp_path):
    state, folder = tmp_path / "state", tmp_path / "work"
    assert not is_trusted(state, str(folder))
    grant_trust(state, str(folder))
    assert is_trusted(state, str(folder))
    assert not is_trusted(state, str(tmp_path))
    assert not is_trusted(state, str(tmp_path / "work-of-another"))


def test_a_folder_below_a_trusted_one_is_trusted_but_not_through_dots_or_links(tmp_path):
    state, folder = tmp_path / "state", tmp_path / "work"
    (folder / "sub").mkdir(parents=True)
    (tmp_path / "evil").mkdir()
    (folder / "link").symlink_to(tmp_path / "evil")
    grant_trust(state, str(folder))
    assert is_trusted(state, str(folder / "sub"))
    assert not is_trusted(state, str(folder / ".." / "evil"))
    assert not is_trusted(state, str(folder / "link"))


def test_trust_can_be_taken_back(tmp_path):
    grant_trust(tmp_path, "/projects/a")
    grant_trust(tmp_path, "/projects/b")
    assert revoke_trust(tmp_path, "/projects/a")
    assert not revoke_trust(tmp_path, "/projects/a")
    assert not is_trusted(tmp_path, "/projects/a")
    assert is_trusted(tmp_path, "/projects/b")


def test_the_file_is_the_users_alone(tmp_path):
    grant_trust(tmp_path / "state", "/work")
    files = [*(tmp_path / "state").iterdir()]
    assert "trusted.json" in {each.name for each in files}
    assert {stat.S_IMODE(each.stat().st_mode) for each in files} == {0o600}
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700


def test_a_broken_file_trusts_nothing_and_can_be_written_again(tmp_path):
    for content in ("{", '{"/": true}', '"/"', "[1]"):
        (tmp_path / "trusted.json").write_text(content)
        assert not is_trusted(tmp_path, "/work")
    grant_trust(tmp_path, "/work")
    assert is_trusted(tmp_path, "/work")
