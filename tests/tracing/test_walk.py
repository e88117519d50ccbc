"""Which files of a workspace are looked at, and in which order."""

from mase_server.tracing.importing.source import files_below


def found(folder, *suffixes, but=""):
    return [file.path.removeprefix(f"{folder}/") for file in files_below(str(folder), suffixes or (".py",), but)]


def grow(folder, *paths):
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("")


def test_what_stands_highest_comes_first_and_then_by_name(tmp_path):
    grow(tmp_path, "a/deep/x.py", "a/z.py", "b/y.py", "top.py", "also.py")
    assert found(tmp_path) == ["also.py", "top.py", "a/z.py", "b/y.py", "a/deep/x.py"]


def test_only_the_wanted_kinds_and_not_the_file_that_asks(tmp_path):
    grow(tmp_path, "net.py", "use.py", "readme.md", "data.npz")
    assert found(tmp_path, ".py", ".md", but=str(tmp_path / "net.py")) == ["readme.md", "use.py"]


def test_hidden_built_and_installed_folders_are_passed_over(tmp_path):
    grow(tmp_path, ".git/x.py", "venv/x.py", "node_modules/x.py", "lib/site-packages/x.py", "build/x.py", "src/x.py")
    assert found(tmp_path) == ["src/x.py"]


def test_links_to_folders_are_not_followed(tmp_path):
    grow(tmp_path, "real/x.py")
    (tmp_path / "loop").symlink_to(tmp_path)
    assert found(tmp_path) == ["real/x.py"]


def test_a_folder_that_is_not_there_has_no_files(tmp_path):
    assert found(tmp_path / "nowhere") == []
