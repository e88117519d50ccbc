"""What is kept is believed and executed only where nobody else can write: cache, state, and what holds them."""

import grp
import marshal
import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest
from hostile import MODEL, SERVER

from mase_server import private
from mase_server.daemon.trust import grant_trust
from mase_server.private import NotPrivate, own_folder, private_folder
from mase_server.simulation.building import keep_folder
from mase_server.tracing.importing import importer

_AS_ROOT = pytest.mark.skipif(os.getuid() != 0, reason="only root can give folders away")


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Folders above a kept one, below no home folder."""
    monkeypatch.setenv("HOME", "/nowhere")
    (tmp_path / "a" / "b").mkdir(parents=True)
    return tmp_path


def test_a_folder_is_made_for_its_user_alone_whatever_the_umask(home):
    before = os.umask(0)
    try:
        made = own_folder(home / "new" / "newer" / "newest")
    finally:
        os.umask(before)
    assert [each.stat().st_mode & 0o777 for each in (made, made.parent, made.parent.parent)] == [0o700] * 3


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        (0o777, "can be written by other users (mode 777); remove it, or run chmod go-w "),
        (0o1777, "can be written by other users (mode 1777); remove it, or run chmod go-w "),
        (0o720, "can be written by other users (mode 720); remove it, or run chmod go-w "),
    ],
)
def test_a_folder_that_others_can_write_to_is_refused(mode, why, home):
    folder = home / "a" / "b"
    folder.chmod(mode)
    for check in (own_folder, private_folder):
        with pytest.raises(NotPrivate) as told:
            check(folder)
        assert str(told.value).startswith(f"{folder} {why}") or check is private_folder
    folder.chmod(0o755)
    assert own_folder(folder) == folder


@pytest.mark.parametrize("mode", [0o777, 0o757, 0o775])
def test_nor_may_they_write_to_one_above_where_they_could_exchange_it(mode, home, monkeypatch):
    monkeypatch.setattr(grp, "getgrgid", lambda gid: grp.struct_group(("staff", "x", gid, ["somebody"])))
    own_folder(home / "a" / "b")
    (home / "a").chmod(mode)
    told = f"{home}/a/b lies in {home}/a, where other users can write (mode {mode:o}); run chmod go-w {home}/a"
    with pytest.raises(NotPrivate) as raised:
        own_folder(home / "a" / "b")
    assert str(raised.value) == told
    (home / "a").chmod(mode | 0o1000)  # as /tmp: nobody exchanges there what belongs to somebody else
    own_folder(home / "a" / "b")
    monkeypatch.setenv("HOME", str(home / "a" / "b"))  # who owns a home decides what lies above it
    (home / "a").chmod(mode)
    own_folder(home / "a" / "b" / "cache")


def test_the_private_group_of_a_user_is_nobody_else(home, monkeypatch):
    """Debian and others give each user a group of their own, and a umask of 002."""
    user = pwd.getpwuid(os.getuid())
    (home / "a").chmod(0o775)
    members = []
    monkeypatch.setattr(grp, "getgrgid", lambda gid: grp.struct_group((user.pw_name, "x", user.pw_gid, members)))
    own_folder(home / "a" / "b")
    members.append("somebody")
    with pytest.raises(NotPrivate, match="where other users can write"):
        own_folder(home / "a" / "b")


def test_links_are_followed_on_the_way_alone_and_both_ends_are_looked_at(home):
    (home / "link").symlink_to(home / "a" / "b")
    with pytest.raises(NotPrivate, match=f"{home}/link is no folder; remove it"):
        own_folder(home / "link")
    own_folder(home / "link" / "cache")
    (home / "a").chmod(0o777)
    with pytest.raises(NotPrivate, match=f"lies in {home}/a, where"):
        own_folder(home / "link" / "cache")
    (home / "a").chmod(0o755)
    (home / "open").mkdir()
    (home / "open").chmod(0o777)
    (home / "open" / "link").symlink_to(home / "a" / "b")
    with pytest.raises(NotPrivate, match=f"lies in {home}/open, where"):
        own_folder(home / "open" / "link" / "cache")


@_AS_ROOT
def test_what_belongs_to_somebody_else_is_refused(home):
    os.chown(home / "a" / "b", 12345, 12345)
    with pytest.raises(NotPrivate, match=f"{home}/a/b belongs to user 12345, not to this one; remove it"):
        own_folder(home / "a" / "b")
    with pytest.raises(NotPrivate, match=f"lies in {home}/a/b, which belongs to user 12345"):
        own_folder(home / "a" / "b" / "cache")


def planted(cache, source):
    """A valid entry for a source, of which only who wrote it can tell that it is not what was made of the source."""
    importer.load_code(str(source), str(cache))
    (entry,) = cache.iterdir()
    code = importer.load_code(str(source), str(cache))
    evil = source.with_name("evil.py")
    evil.write_text("ran = 'planted'\n")
    made = importer.instrument(evil.read_bytes(), str(source))
    body = marshal.dumps((made.code, [tuple(site) for site in made.sites], []))
    head = entry.read_bytes()[: len(importer._MAGIC) + 32]
    entry.write_bytes(head + importer.zlib.crc32(body).to_bytes(4, "big") + body)
    return entry, code


def ran(source, cache):
    names = {"__mase__": lambda site, value: value}
    exec(importer.load_code(str(source), importer.prepare_cache_folder(str(cache))).code, names)
    return names["ran"]


def test_planted_code_is_not_executed(home):
    cache, source = home / "a" / "b", home / "net.py"
    source.write_text("ran = 'own'\n")
    entry, _ = planted(cache, source)
    assert ran(source, cache) == "planted"  # who can write there as this user can do anything
    cache.chmod(0o777)
    assert ran(source, cache) == "own"
    cache.chmod(0o700)
    entry.chmod(0o666)
    assert ran(source, cache) == "own"


@_AS_ROOT
def test_nor_after_the_folder_was_mended(home):
    cache, source = home / "a" / "b", home / "net.py"
    source.write_text("ran = 'own'\n")
    entry, _ = planted(cache, source)
    os.chown(entry, 12345, 12345)
    assert ran(source, cache) == "own"


async def test_nor_is_a_planted_program(home):
    place = home / "a" / "b"

    async def make(folder):
        (folder / "program").touch()

    assert await keep_folder(place, "key", make) == place / "key"
    (place / "key").chmod(0o777)
    with pytest.raises(NotPrivate, match=f"{place}/key can be written by other users"):
        await keep_folder(place, "key", make)
    (place / "key").chmod(0o700)
    place.chmod(0o777)
    with pytest.raises(NotPrivate, match=f"{place} can be written by other users"):
        await keep_folder(place, "key", make)


def test_a_refused_cache_is_done_without_and_said_once(home, monkeypatch, caplog):
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "a"))
    monkeypatch.setattr(private.tempfile, "tempdir", str(home))
    assert private.cache_dir() == home / "a" / "mase-server"
    (home / "a").chmod(0o777)
    found = private.cache_dir()
    assert (found.parent, found.stat().st_mode & 0o777, private.cache_dir()) == (home, 0o700, found)
    why = f"{home}/a/mase-server lies in {home}/a, where other users can write (mode 777); run chmod go-w {home}/a"
    assert caplog.messages == [f"nothing is kept from one run to the next: {why}"]


@pytest.fixture
def opened(tmp_path, private_home):
    """The environment of a person whose cache and state lie in folders that everybody can write to."""
    folders = {"XDG_CACHE_HOME": tmp_path / "cache", "XDG_STATE_HOME": tmp_path / "state"}
    for folder in folders.values():
        folder.mkdir()
        folder.chmod(0o777)
    return {**os.environ, **private_home, **{name: str(folder) for name, folder in folders.items()}}


def test_with_folders_open_to_all_a_file_is_shown_nothing_is_kept_and_both_are_said(tmp_path, opened):
    model = tmp_path / "model.py"
    model.write_text(MODEL.format(trap="pass", call="f32[3, 4]"))
    done = subprocess.run([*SERVER, "shapes", model], env=opened, capture_output=True, text=True, timeout=200)
    assert (done.returncode, "f32[" in done.stdout) == (0, True)
    assert done.stderr.count("nothing is kept from one run to the next: ") == 1
    assert [*(tmp_path / "cache").rglob("*"), *(tmp_path / "state").rglob("*")] == []
    done = subprocess.run([*SERVER, "trust", tmp_path], env=opened, capture_output=True, text=True, timeout=200)
    why = "where other users can write (mode 777); run chmod go-w "
    state = tmp_path / "state"
    assert (done.returncode, done.stderr) == (1, f"error: {state}/mase-server lies in {state}, {why}{state}\n")
    words = [*SERVER, "doctor", tmp_path, "--python", "/nowhere/python"]
    told = subprocess.run(words, env=opened, capture_output=True, text=True, timeout=200).stdout
    for name in ("cache", "state"):
        assert f"to fix it: {tmp_path / name}/mase-server lies in {tmp_path / name}, {why}{tmp_path / name}\n" in told


def test_a_log_is_not_written_where_a_link_may_be_planted(tmp_path, opened):
    ended = subprocess.run([*SERVER, "serve", tmp_path, "--until-eof"], env=opened, stdin=subprocess.DEVNULL,
                           capture_output=True, text=True, timeout=200)  # fmt: skip
    assert (ended.returncode, [*(tmp_path / "state").rglob("*")]) == (0, [])
    assert "WARNING mase_server: no log is kept: " in ended.stderr


# One writer at a time

GRANTS = """
import os, sys
from pathlib import Path
from mase_server.daemon.trust import grant_trust, revoke_trust
state, folders = Path(sys.argv[1]), int(sys.argv[2])
ready, go = os.pipe()
children = []
for number in range(folders):
    if (pid := os.fork()) == 0:
        os.close(go)
        os.read(ready, 1)
        if number % 4 == 3:
            revoke_trust(state, f"/before/{number}")
        else:
            grant_trust(state, f"/granted/{number}")
        os._exit(0)
    children.append(pid)
os.close(ready)
os.close(go)
sys.exit(sum(os.waitpid(pid, 0)[1] for pid in children) != 0)
"""


@pytest.mark.parametrize(("most", "locks"), [(200, True), (40, False)], ids=["locks", "without locks"])
def test_no_grant_and_no_revocation_of_many_processes_is_lost(most, locks, tmp_path):
    for number in range(3, most, 20):
        grant_trust(tmp_path / "state", f"/before/{number}")
    code = GRANTS if locks else f"from mase_server import private\nprivate._HAS_LOCKS = False\n{GRANTS}"
    subprocess.run([sys.executable, "-P", "-c", code, tmp_path / "state", str(most)], check=True, timeout=100)
    granted = [f"/granted/{number}" for number in range(most) if number % 4 != 3]
    assert private.read_own(tmp_path / "state" / "trusted.json").decode() == _listed(granted)


def _listed(folders):
    return "[\n " + ",\n ".join(f'"{one}"' for one in sorted(folders)) + "\n]"


def test_a_writer_that_stopped_holds_up_nobody_for_ever(tmp_path):
    file = tmp_path / "kept.json"
    late = private.change_file(file, 0.02)
    with private.change_file(file), pytest.raises(TimeoutError, match=f"has been changing {file} for 0.02 s"):
        late.__enter__()
    with private.change_file(file, 0.02):
        pass


def test_servers_that_learn_at_once_lose_nothing(tmp_path):
    from mase_server.daemon.pool import Learned
    from mase_server.daemon.trials import PickedSets

    for name in ("a.py", "b.py"):
        (tmp_path / name).touch()
    one, other = (Learned(tmp_path, "/w", "/python") for _ in range(2))
    one.learn(str(tmp_path / "a.py"), ["scipy"])
    one.ban(["threads"])
    other.learn(str(tmp_path / "b.py"), ["numpy", "threads"])
    found = Learned(tmp_path, "/w", "/python")
    assert (sorted(found.modules()), found.needs(str(tmp_path / "a.py"))) == (["numpy", "scipy"], ["scipy"])
    assert sorted(other.modules()) == ["numpy", "scipy"]
    PickedSets(tmp_path).pick("/a.py", "Net", "small")
    PickedSets(tmp_path).pick("/b.py", "Net", "large")
    assert PickedSets(tmp_path).of("/a.py") == {"Net": "small"}


def test_two_servers_that_make_one_token_have_the_same(tmp_path):
    code = "import os, sys\nfrom pathlib import Path\nfrom mase_server.private import token_of\n"
    code += "ready, go = os.pipe()\nfor _ in range(20):\n    if os.fork() == 0:\n        os.close(go)\n"
    code += "        os.read(ready, 1)\n        os.write(1, f'{token_of(Path(sys.argv[1]))} '.encode())\n"
    code += "        os._exit(0)\n"
    code += "os.close(ready)\nos.close(go)\nfor _ in range(20):\n    os.wait()\n"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, tmp_path / "token"], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [Path(tmp_path, "token").read_text().strip()] * 20
