"""Build and check everything that a release publishes: `python -m docs.release URL TOOLS` (`make release`).

Nothing is published. URL is the project's address; it stands in for `PROJECT_URL` in every file that is packed. TOOLS
is the folder of programs such as `twine`. The packages are built in a copy of the files that git has, so that no stray
file gets in, and the README's links, which lead nowhere on the page of an index, become addresses. What passes lies in
`dist/`: sdist, wheel, VSIX, lists of packages, recipes, notes and checksums.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from mase_server import PROJECT_URL, __version__

ROOT = Path(__file__).resolve().parents[1]
CLIENT, DIST = "mase_client_vscode", ROOT / "dist"
README = ROOT / "README.md"
#: What an sdist must have beside the package, so that it can be tested, read and packed by others.
SDIST_HAS = ("CHANGELOG.md", "LICENSE", "docs/README.md", "examples/mlp.py", "rtl/README.md", "tests/conftest.py",
             "tests/requirements.txt", "benchmarks/matrix.py", "mase_client_vscode/package.json",
             "mase_client_vscode/dist/pages/view.js")  # fmt: skip
#: All that may lie in a wheel.
WHEEL_MAY = re.compile(
    r"mase_server/(\w+/)*(\w+\.py|py\.typed)|mase_server/hardware/templates/[\w.-]+"
    rf"|mase_server-{re.escape(__version__)}\.(dist-info/.*|data/data/share/mase-server/(rtl|pages)/[\w./-]+)"
)
#: What a wheel must have of the folder `share/mase-server`: components for Verilog, and the pages of `view`.
WHEEL_HAS = ("rtl/fixed_linear.sv", "rtl/simulation/driver.cpp", "pages/view.js", "pages/view.css")
VSIX_HAS = ("package.json", "readme.md", "changelog.md", "LICENSE.txt", "dist/extension.js", "bundled/start.py")
#: Tests of an unpacked sdist: its parts alone, and the whole way from an editor to a traced shape.
SDIST_TESTS = ("tests/test_wire.py", "tests/test_imports.py", "tests/formats/test_elements.py",
               "tests/rpc/test_registry.py", "tests/lsp/test_with_real_daemon.py", "tests/lsp/test_alignment.py",
               "tests/test_client_package.py")  # fmt: skip
#: What no README shows, and what needs the files beside the package.
ALSO_TRIED = (["mase-server", "view", "model.py", "-o", "page.html"],)
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s:#]+)((?:#[^)\s]*)?\))")
FENCE = re.compile(r"^```\w*\n(.*?)^```$", re.M | re.S)


class NotReleasable(Exception):
    """What a person has to mend before a release."""


def absolute_links(page: str, url: str, version: str) -> str:
    """The page with links that hold outside of the repository: to the files of this version, pictures as they are."""

    def replace(found: re.Match[str]) -> str:
        kind = "raw" if found[1].startswith("!") else "blob"
        return f"{found[1]}{url}/{kind}/v{version}/{found[2]}{found[3]}"

    return LINK.sub(replace, page)


def copy_tracked(folder: Path, url: str) -> None:
    """Copy the files that git has, or would add, with the project's address in them."""
    listed = _run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], ROOT).split("\0")
    for name in filter(None, listed):
        source, target = ROOT / name, folder / name
        if not source.is_file():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
        data = source.read_bytes()
        if PROJECT_URL.encode() in data and not name.startswith("tests/"):
            target.write_bytes(data.replace(PROJECT_URL.encode(), url.encode()))
    readme = folder / "README.md"
    readme.write_text(absolute_links(readme.read_text("utf-8"), url, __version__), "utf-8")


def check_texts() -> None:
    """The changelog has this version with its day; the extension has its number. NotReleasable."""
    if not re.search(rf"^## {re.escape(__version__)} - \d{{4}}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.M):
        raise NotReleasable(f"CHANGELOG.md has no heading `## {__version__} - YEAR-MONTH-DAY`")
    for name in ("package.json", "package-lock.json"):
        if json.loads((ROOT / CLIENT / name).read_text())["version"] != __version__:
            raise NotReleasable(f"{CLIENT}/{name} has another version than mase_server/__init__.py")


def changes() -> str:
    """What the changelog says of this version: the notes of the release."""
    _, _, after = (ROOT / "CHANGELOG.md").read_text("utf-8").partition(f"\n## {__version__} - ")
    return after.partition("\n")[2].partition("\n## ")[0].strip() + "\n"


def build_python(source: Path, tools: Path) -> tuple[Path, Path]:
    """The sdist and the wheel, checked by twine, by check-wheel-contents, and against the lists above."""
    moment = _run(["git", "log", "-1", "--format=%ct"], ROOT).strip()
    words = [tools / "python", "-m", "build", "--no-isolation", "--outdir", DIST, source]
    _run(words, source, {"SOURCE_DATE_EPOCH": moment})
    [sdist], [wheel] = DIST.glob("*.tar.gz"), DIST.glob("*.whl")
    _run([tools / "twine", "check", "--strict", sdist, wheel], DIST)
    # W004: examples of hardware templates are no modules. W009: only one package lies on top, and data beside it.
    _run([tools / "check-wheel-contents", "--ignore", "W004", wheel], DIST)
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    if missing := [name for name in SDIST_HAS if name not in held]:
        raise NotReleasable(f"the sdist lacks {', '.join(missing)}")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(f"mase_server-{__version__}.dist-info/METADATA").decode()
    if stray := [name for name in names if not WHEEL_MAY.fullmatch(name)]:
        raise NotReleasable(f"the wheel has stray files: {', '.join(stray[:5])}")
    shared = f"mase_server-{__version__}.data/data/share/mase-server/"
    if missing := [name for name in WHEEL_HAS if shared + name not in names]:
        raise NotReleasable(f"the wheel lacks {', '.join(missing)}")
    if relative := LINK.findall(metadata.partition("\n\n")[2]):
        raise NotReleasable(f"the README's links lead nowhere on an index: {relative[:3]}")
    return sdist, wheel


def build_vsix(source: Path) -> Path:
    """The extension, packed in the copy, with what a marketplace shows; its pages stay there for the wheel."""
    client, made = source / CLIENT, DIST / f"mase-vscode-{__version__}.vsix"
    modules = client / "node_modules"
    modules.symlink_to(ROOT / CLIENT / "node_modules")
    _run([sys.executable, client / "scripts" / "bundle_server.py", client / "bundled"], source)
    path = os.pathsep.join([str(ROOT / ".tools" / "bin"), os.environ["PATH"]])
    _run(["npm", "run", "--silent", "package"], client, {"PATH": path})
    modules.unlink()
    shutil.copy2(client / "dist" / "mase-vscode.vsix", made)
    with zipfile.ZipFile(made) as archive:
        held = {name.removeprefix("extension/") for name in archive.namelist()}
        package = json.loads(archive.read("extension/package.json"))
    missing = [name for name in VSIX_HAS if name not in held] + [
        key for key in ("repository", "bugs", "homepage", "license") if not package.get(key)
    ]
    if missing:
        raise NotReleasable(f"the VSIX lacks {', '.join(missing)}")
    return made


def readme_commands(page: str) -> Iterator[list[str]]:
    """The commands of the README that a person types outside of a clone, as words."""
    for block in FENCE.findall(page):
        for line in block.splitlines():
            if words := line.partition("#")[0].split():
                yield words


def try_readme(wheel: Path, models: str, folder: Path) -> list[str]:
    """Run every command of the README, and `ALSO_TRIED`, in a fresh environment in `folder`, outside of the checkout.

    models: the interpreter with torch. Returns a line for each; NotReleasable if one fails.
    """
    folder.mkdir(exist_ok=True)
    _run([sys.executable, "-m", "venv", folder / "venv"], folder)
    commands = folder / "venv" / ("Scripts" if sys.platform == "win32" else "bin")
    work = folder / "work"
    shutil.copytree(ROOT / "examples", work / "src")
    shutil.copy2(ROOT / "examples" / "mlp.py", work / "model.py")
    # A project with an environment of its own, which has torch and no server.
    settings = {
        "VIRTUAL_ENV": str(Path(models).parents[1]), "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
        "XDG_STATE_HOME": str(folder / "state"), "XDG_CACHE_HOME": str(folder / "cache"),
    }  # fmt: skip
    told = []
    for words in [*readme_commands(README.read_text("utf-8")), *ALSO_TRIED]:
        if words == ["pip", "install", "mase-server"]:
            words = ["pip", "--quiet", "--disable-pip-version-check", "install", str(wheel)]
        _run([commands / words[0], *words[1:]], work, settings)
        told.append(" ".join(words))
    return told


def try_sdist(sdist: Path, folder: Path) -> str:
    """The last line of pytest on the core of an unpacked sdist."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    [inner] = folder.iterdir()
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", *SDIST_TESTS]
    return _run(words, inner, {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(inner)}).strip().splitlines()[-1]


def fill_recipes(sdist: Path, url: str) -> None:
    """Write the recipes of other package managers with this release's version, address and checksum."""
    facts = {"@VERSION@": __version__, "@URL@": url, "@SHA256@": _digest(sdist)}
    (DIST / "recipes").mkdir()
    for recipe in (ROOT / "docs" / "recipes").iterdir():
        if recipe.suffix != ".md":
            text = recipe.read_text("utf-8")
            for mark, value in facts.items():
                text = text.replace(mark, value)
            (DIST / "recipes" / recipe.name).write_text(text, "utf-8")


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _run(words: Sequence[str | Path], folder: Path, more: Mapping[str, str] | None = None) -> str:
    """Run a program, and return what it printed; NotReleasable has it where the program fails."""
    settings = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | dict(more or {})
    done = subprocess.run(list(map(str, words)), cwd=folder, env=settings, capture_output=True, text=True, check=False)
    if done.returncode:
        shown = " ".join(map(str, words))
        raise NotReleasable(f"`{shown}` ended with {done.returncode}:\n{(done.stdout + done.stderr).strip()[-3000:]}")
    return done.stdout


def main(url: str, tools: Path) -> None:
    """Build and check everything; tells each step."""
    url = url.rstrip("/")
    check_texts()
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    with tempfile.TemporaryDirectory(prefix="mase-release-") as scratch:
        source = Path(scratch, "source")
        copy_tracked(source, url)
        print(f"packed {build_vsix(source).name}")
        sdist, wheel = build_python(source, tools)
        print(f"built and checked {sdist.name}, {wheel.name}")
        (DIST / "notes.md").write_text(changes(), "utf-8")
        Path(scratch, "sdist").mkdir()
        print(f"tests of the unpacked sdist: {try_sdist(sdist, Path(scratch, 'sdist'))}")
        Path(scratch, "readme").mkdir()
        for command in try_readme(wheel, sys.executable, Path(scratch, "readme")):
            print(f"works from the wheel: {command}")
    for bom in sorted((ROOT / "docs" / "sbom").glob("*.json")):
        shutil.copy2(bom, DIST / f"sbom-{bom.name}")
    fill_recipes(sdist, url)
    files = sorted(file for file in DIST.rglob("*") if file.is_file())
    sums = [f"{_digest(file)}  {file.relative_to(DIST).as_posix()}\n" for file in files]
    (DIST / "SHA256SUMS").write_text("".join(sums), "utf-8")
    print(f"{len(sums)} files with their checksums lie in {DIST.name}/; nothing was published")
    if url == PROJECT_URL:
        print("URL was not set: all links lead to a place that does not exist (make release URL=https://...)")


if __name__ == "__main__":
    try:
        main(sys.argv[1], Path(sys.argv[2]).absolute())
    except NotReleasable as error:
        sys.exit(f"not releasable: {error}")
