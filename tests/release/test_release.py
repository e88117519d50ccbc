"""What is packed and published: links, versions, recipes, workflows, and the commands of the README and the pages."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from docs import release
from mase_server import PROJECT_URL, __version__
from mase_server.cli.commands import build_app

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RECIPES = ROOT / "docs" / "recipes"
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / ".github" / "workflows").glob("*.yml")}
COMMANDS = get_command(build_app()).commands
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINES = [
    (page.name, line.partition("  #")[0].strip())
    for page in PAGES
    for block in release.FENCE.findall(page.read_text("utf-8"))
    for line in block.splitlines()
    if re.match(r"(\$ )?mase-server( |$)", line.strip())
]


def test_links_lead_to_the_files_of_the_version_and_addresses_stay():
    page = "[a](docs/a.md#b) ![p](docs/images/p.gif) [c](https://else.where/x) [d](#below)"
    told = release.absolute_links(page, "https://our.place/it", "1.2.3")
    assert told == (
        "[a](https://our.place/it/blob/v1.2.3/docs/a.md#b) ![p](https://our.place/it/raw/v1.2.3/docs/images/p.gif)"
        " [c](https://else.where/x) [d](#below)"
    )


def test_the_address_of_the_project_stands_in_one_form_only():
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(r"^URL \?= (.*)$", makefile, re.M)[1] == PROJECT_URL
    assert all(url.startswith(PROJECT_URL) for url in PROJECT["urls"].values())
    package = (ROOT / "mase_client_vscode" / "package.json").read_text()
    assert package.count(f'"{PROJECT_URL}/issues"') == package.count(f'"{PROJECT_URL}.git"') == 1


def test_the_changelog_has_this_version_with_its_day_and_notes():
    release.check_texts()
    assert len(release.changes()) > 100


def test_an_unfinished_changelog_is_refused(monkeypatch):
    monkeypatch.setattr(release, "__version__", "99.0.0")
    with pytest.raises(release.NotReleasable, match=r"CHANGELOG.md has no heading `## 99.0.0 - YEAR-MONTH-DAY`"):
        release.check_texts()


def test_the_recipes_need_what_the_package_needs():
    needs = {re.match(r"[\w-]+", each)[0]: re.sub(r"^[\w-]+", "", each) for each in PROJECT["dependencies"]}
    conda = yaml.safe_load((RECIPES / "conda.yaml").read_text())
    run = dict(each.split(" ") for each in conda["requirements"]["run"])
    assert run.pop("msgpack-python") == needs["msgpack"]  # its name there
    assert {**run, "msgpack": needs["msgpack"]} == {**needs, "python": PROJECT["requires-python"]}
    nix = re.search(r"dependencies = with [\w.]+; \[([^\]]*)\]", (RECIPES / "nix.nix").read_text())[1].split()
    assert set(nix) == set(needs)
    assert yaml.safe_load((RECIPES / "mason.yaml").read_text())["bin"] == {"mase-server": "pypi:mase-server"}


def test_filled_recipes_hold_version_address_and_checksum(tmp_path, monkeypatch):
    monkeypatch.setattr(release, "DIST", tmp_path)
    sdist = tmp_path / "it.tar.gz"
    sdist.write_bytes(b"packed")
    release.fill_recipes(sdist, "https://our.place/it")
    filled = yaml.safe_load((tmp_path / "recipes" / "conda.yaml").read_text())
    assert filled["package"]["version"] == __version__
    assert (
        filled["source"]["url"]
        == f"https://our.place/it/releases/download/v{__version__}/mase_server-{__version__}.tar.gz"
    )
    assert len(filled["source"]["sha256"]) == 64
    assert not [path for path in (tmp_path / "recipes").iterdir() if re.search(r"@[A-Z0-9]+@", path.read_text())]


def test_hosted_runs_cover_the_systems_and_publish_only_what_was_built():
    matrix = WORKFLOWS["systems"]["jobs"]["core"]["strategy"]["matrix"]
    assert [each.split("-")[0] for each in matrix["system"]] == ["ubuntu", "macos", "windows"]
    declared = [each.rpartition(" ")[2] for each in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", each)]
    assert set(declared) <= set(matrix["python"])
    jobs = WORKFLOWS["release"]["jobs"]
    assert WORKFLOWS["release"][True] == {"push": {"tags": ["v*"]}}  # YAML reads `on` as true
    assert {name for name, job in jobs.items() if "build" not in job.get("needs", [])} == {"build"}
    assert any("make release" in step.get("run", "") for step in jobs["build"]["steps"])
    named = re.findall(r"tests/[\w/]+(?:\.py)?", (ROOT / ".github/workflows/systems.yml").read_text())
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize(("page", "line"), LINES, ids=lambda text: text.replace("/", "_")[:60])
def test_a_command_on_a_page_is_one_that_the_program_takes(page, line):
    words = shlex.split(line.removeprefix("$ "))[1:]
    words = words[: next((index for index, word in enumerate(words) if word in ("|", ">", "&&", "&", ";")), len(words))]
    if not words or words[0].startswith("-"):
        return
    command = COMMANDS[words[0]]
    options = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    given = [word.partition("=")[0] for word in words[1:] if re.match(r"--?[a-z]", word)]
    further = {"lsp": {"--tcp", "--token-file"}}.get(words[0], set())  # it reads these itself, to start faster
    assert [option for option in given if option not in options | further and option != "--help"] == []


#: Goes on until it is stopped, or needs another machine: other tests start these for real.
ENDLESS = re.compile(r"mase-server (lsp|serve|trust|rpc|view [^-]*$|sweep .*--on dask)")
#: What a page has in mind by model.py or net.py; elsewhere it is any model.
MEANT = {"formats.md": "gpt.py", "inputs.md": """
from torch import nn

# mase[small]: x: f32[1, 3, 32, 32]
# mase[large]: x: f32[2, 3, 64, 64]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)

    def forward(self, x):
        return self.conv(x)
"""}  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_command_of_the_readme_and_the_pages_works_in_a_fresh_environment(tmp_path):
    words = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    source, folder = tmp_path / "source", tmp_path / "fresh"
    release.copy_tracked(source, PROJECT_URL)
    pages = "mase_client_vscode/dist/pages"  # a release builds them, and git has none of them
    shutil.copytree(ROOT / pages, source / pages)
    release._run([*words, tmp_path, source], tmp_path)
    [wheel] = tmp_path.glob("*.whl")
    told = [each.split()[:2] for each in release.try_readme(wheel, sys.executable, folder)]
    assert told[1:] == [["mase-server", each] for each in ("shapes", "check", "doctor", "view")]
    assert "<title>" in (folder / "work" / "page.html").read_text()

    work, failed = folder / "pages", []
    shutil.copytree(ROOT / "examples", work / "examples")
    (work / "src").mkdir()
    shutil.copy2(ROOT / "examples" / "lenet.py", work / "src")
    shutil.copy2(ROOT / "examples" / "sweep.toml", work / "grid.toml")
    shutil.copy2(ROOT / "examples" / "mlp.py", work / "net.py")
    for words in ("init", "add -A", "-c user.name=me -c user.email=me@example.com commit -m models"):
        subprocess.run(["git", *words.split()], cwd=work, check=True, capture_output=True)
    once = {line: page for page, line in LINES if page != "README.md" and not ENDLESS.search(line)}
    for line, page in once.items():
        meant = MEANT.get(page, "mlp.py")
        text = meant if "\n" in meant else (ROOT / "examples" / meant).read_text()
        for name in ("model.py", "net.py"):
            (work / name).write_text(text)
        words = shlex.split(line.removeprefix("$ "))
        settings = os.environ | {"VIRTUAL_ENV": str(Path(sys.prefix)), "XDG_STATE_HOME": str(folder / "state")}
        done = subprocess.run(
            [folder / "venv" / "bin" / words[0], *words[1:]],
            cwd=work, env=settings, capture_output=True, text=True, timeout=180, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        if done.returncode:
            failed.append(f"{page}: {line}: {done.returncode}: {done.stdout[-500:]} {done.stderr[-500:]}")
    assert failed == []
