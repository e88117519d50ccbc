"""Reading files: what is no regular file is refused at once, and says what it is."""

import errno
import os
import socket

import pytest

from mase_server import notebooks, reading

NOBODY = 65534


def directory(path):
    path.mkdir()


def pipe(path):
    os.mkfifo(path)


def open_socket(path):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def device(path):
    path.symlink_to("/dev/zero")


def loop(path):
    path.symlink_to(path)


def dangling(path):
    path.symlink_to(path.parent / "nowhere.py")


KINDS = {
    directory: "This is a directory, not a file.",
    pipe: "This is a named pipe, not a file.",
    open_socket: "This is a socket, not a file.",
    device: "This is a device, not a file.",
    loop: "This is a link that leads back to itself.",
    dangling: "This is a link to {folder}/nowhere.py, which does not exist.",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory: the names of sockets are short."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["net.py", "net.ipynb"])
def test_what_is_no_file_is_told_and_never_waited_for(folder, kind, name):
    kind(folder / name)
    with pytest.raises(reading.UnreadableError) as told:
        notebooks.read_traced_bytes(str(folder / name))
    assert told.value.strerror == KINDS[kind].format(folder=folder)
    assert told.value.filename == str(folder / name)


def test_a_file_is_its_bytes_and_a_link_is_what_it_leads_to(folder):
    data = bytes(range(256)) * 100
    (folder / "net.py").write_bytes(data)
    (folder / "link.py").symlink_to("net.py")
    assert reading.read_file(str(folder / "net.py")) == data
    assert reading.read_file(str(folder / "link.py"), len(data)) == data
    with pytest.raises(reading.UnreadableError):
        reading.read_file(str(folder / "link.py"), len(data) - 1)


def test_a_file_that_is_too_large_says_how_large_it_is_and_is_not_read(folder):
    path = folder / "net.py"
    path.write_bytes(b"")
    os.truncate(path, 1 << 40)  # no machine could read it
    with pytest.raises(reading.UnreadableError) as told:
        reading.read_file(str(path), reading.MOST)
    assert told.value.errno == errno.EFBIG
    assert told.value.strerror == (
        "This file has more than 8 MiB, and is not traced. Move data and the like to a file of their own."
    )


def test_what_has_no_size_before_it_is_read_is_bounded_all_the_same():
    assert os.stat("/proc/self/maps").st_size == 0  # noqa: PTH116
    with pytest.raises(reading.UnreadableError, match=r"This file has more than .* MiB, and is not traced"):
        reading.read_file("/proc/self/maps", 1)


def test_what_is_not_there_is_told_as_open_tells_it(folder):
    (folder / "file").write_text("")
    for path, kind in (("none.py", FileNotFoundError), ("file/net.py", NotADirectoryError)):
        with pytest.raises(kind):
            reading.read_file(str(folder / path))


def test_a_file_that_may_not_be_read_says_so(folder):
    path = folder / "net.py"
    path.write_text("x = 1\n")
    path.chmod(0)
    before = os.geteuid()
    try:
        os.seteuid(before or NOBODY)
        with pytest.raises(reading.UnreadableError, match=r"is not readable \(permission denied\); `chmod u\+r`"):
            reading.read_file(str(path))
    finally:
        os.seteuid(before)


def test_a_notebook_whose_times_were_put_back_is_read_again(folder):
    path = folder / "net.ipynb"
    cell = '{"cells": [{"cell_type": "code", "source": "%s", "metadata": {}}], "metadata": {}}'
    path.write_text(cell % "one")
    before = path.stat()
    assert notebooks.read_traced_bytes(str(path)) == b"# %%\none\n"
    while path.stat().st_ctime_ns == before.st_ctime_ns:  # the clock of the file system has steps
        path.write_text(cell % "two")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert path.stat().st_size == before.st_size
    assert notebooks.read_traced_bytes(str(path)) == b"# %%\ntwo\n"
