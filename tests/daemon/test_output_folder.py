"""What may be written to: a folder that is new, empty or ours."""

import pytest

from mase_server.daemon.pipelines import PassError
from mase_server.daemon.verilog import MARKER, claim_folder


def test_a_new_folder_is_made_and_marked_and_may_be_written_again(tmp_path):
    folder = tmp_path / "deep" / "net"
    claim_folder(str(folder))
    (folder / "net.sv").write_text("module net; endmodule")
    assert [path.name for path in sorted(folder.iterdir())] == [MARKER, "net.sv"]
    claim_folder(str(folder))
    assert (folder / "net.sv").read_text() == "module net; endmodule"


def test_an_empty_folder_is_taken(tmp_path):
    claim_folder(str(tmp_path))
    assert (tmp_path / MARKER).is_file()


def test_a_folder_with_files_of_somebody_else_is_left_as_it_is(tmp_path):
    (tmp_path / ".hidden").write_text("mine")
    with pytest.raises(PassError) as refused:
        claim_folder(str(tmp_path))
    text = f"{tmp_path} holds files that were not written by mase-server, and nothing was written there"
    assert (refused.value.kind, str(refused.value)) == (
        "argument",
        f"{text}. Choose another folder, an empty one, or say overwrite.",
    )
    assert [path.name for path in tmp_path.iterdir()] == [".hidden"]
    claim_folder(str(tmp_path), overwrite=True)
    assert (tmp_path / ".hidden").read_text() == "mine"


def test_a_path_that_is_not_absolute_is_refused():
    with pytest.raises(PassError, match=r"^the folder is 'out'; it has to be an absolute path$"):
        claim_folder("out")


@pytest.mark.parametrize("below", ["", "inside"])
def test_a_file_where_a_folder_is_wanted_is_told(tmp_path, below):
    file = tmp_path / "net"
    file.write_text("a file")
    with pytest.raises(PassError, match=r"^nothing can be written to .*net.*: (File exists|Not a directory)$"):
        claim_folder(str(file / below))
    assert file.read_text() == "a file"


@pytest.mark.parametrize("link", ["net.sv", "rtl", MARKER])
def test_nothing_is_written_through_a_link_also_where_a_folder_says_that_it_is_ours(tmp_path, link):
    folder, elsewhere = tmp_path / "net", tmp_path / "elsewhere"
    claim_folder(str(folder))
    (folder / link).unlink(missing_ok=True)
    elsewhere.mkdir()
    (elsewhere / "mine.txt").write_text("mine")
    (folder / link).symlink_to(elsewhere if link == "rtl" else elsewhere / "mine.txt")
    with pytest.raises(PassError, match="holds files that were not written by mase-server"):
        claim_folder(str(folder))
    assert (elsewhere / "mine.txt").read_text() == "mine"
