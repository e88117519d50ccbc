"""`mase-server trust`: the person's word, kept for every editor."""

from mase_server.daemon.trust import is_trusted
from tests.cli.in_process import unboxed


def test_a_folder_is_trusted_until_it_is_taken_back(mase, tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    done = mase.process("trust", folder)
    assert (done.returncode, done.stdout) == (
        0,
        f"{folder} is trusted: its model files run when an editor opens them.\n",
    )
    state = tmp_path / "state" / "mase-server"
    assert is_trusted(state, str(folder / "inner"))
    assert not is_trusted(state, str(tmp_path))
    assert mase("trust", "--revoke", folder).stdout == f"{folder} is no longer trusted.\n"
    assert not is_trusted(state, str(folder))
    assert mase("trust", "--revoke", folder).stdout == f"{folder} was not trusted.\n"


def test_a_folder_that_does_not_exist_is_wrong_usage(mase, tmp_path):
    done = mase("trust", tmp_path / "nowhere")
    assert done.returncode == 2
    assert "nowhere" in unboxed(done.stderr)


def test_help_names_every_command(mase):
    done = mase.process("--help")
    assert done.returncode == 0
    assert all(command in done.stdout for command in ("shapes", "trust", "lsp"))


def test_lsp_explains_its_own_options(mase):
    done = mase.process("lsp", "--help")
    assert done.returncode == 0
    assert all(option in done.stdout for option in ("--stdio", "--tcp", "--token-file", "--trust"))


def test_a_wrong_address_is_named(mase):
    done = mase.process("lsp", "--tcp", "8765")
    assert done.returncode == 2
    assert "'8765' is no HOST:PORT, e.g. 127.0.0.1:8123" in done.stderr
