"""What the project is made of: `python -m docs.sbom CYCLONEDX` writes docs/sbom/ and docs/licences.md (`make sbom`).

CYCLONEDX is the program of the package cyclonedx-bom. Both lists have the form of CycloneDX: that of Python tells what
`make venv` installs, that of the client what its package-lock.json pins. Nothing in them depends on the machine.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
FOLDER, PAGE = ROOT / "docs" / "sbom", ROOT / "docs" / "licences.md"
CLIENT = ROOT / "mase_client_vscode"
#: The project itself, which is no part of what it is made of.
_OWN = frozenset({"mase-server", "mase-vscode"})
_KEPT = ("bom-ref", "type", "name", "version", "purl", "licenses", "scope", "properties")
_CLASSIFIER = "License :: OSI Approved :: "
_UNTOLD = "see its LICENSE file"

Bom = dict[str, Any]


def main(cyclonedx: str) -> None:
    """Write everything."""
    sys.path.insert(0, str(CLIENT / "scripts"))
    from bundle_server import NEEDED, closure

    python = [cyclonedx, "environment", "--output-reproducible", "--of", "JSON", sys.executable]
    npm = ["npm", "sbom", "--sbom-format", "cyclonedx", "--package-lock-only"]
    boms = {
        "python": plain(_told(python, ROOT), pinned(), closure(NEEDED)),
        "client": plain(_told(npm, CLIENT)),
    }
    FOLDER.mkdir(exist_ok=True)
    for name, bom in boms.items():
        (FOLDER / f"{name}.cdx.json").write_text(json.dumps(bom, indent=1, ensure_ascii=False) + "\n", "utf-8")
    PAGE.write_text(page(boms), "utf-8")


def _told(command: list[str], folder: Path) -> Bom:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    told: Bom = json.loads(done.stdout)
    return told


def pinned() -> set[str]:
    """The packages that tests/requirements.txt names: an environment may hold others, which are none of the project."""
    lines = (ROOT / "tests" / "requirements.txt").read_text("utf-8").splitlines()
    return {named(line.partition("==")[0]) for line in lines if "==" in line and not line.startswith("#")}


def named(name: str) -> str:
    """A package's name as it is compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def plain(told: Bom, only: Container[str] | None = None, bundled: Iterable[str] = ()) -> Bom:
    """What says which packages there are, of which version and licence.

    only: the packages that count.  bundled: those that the VSIX brings; of the client's, what no development needs.
    """
    brought = {named(name) for name in bundled}
    components = []
    for each in told["components"]:
        if each["name"] in _OWN or not (only is None or named(each["name"]) in only):
            continue
        kept = {key: each[key] for key in _KEPT if each.get(key)}
        if named(each["name"]) in brought or (only is None and each.get("scope") == "required"):
            kept["properties"] = [*kept.get("properties", ()), {"name": "mase:bundled", "value": "vsix"}]
        components.append(kept)
    known = {each["bom-ref"] for each in components}
    needs = [
        {**each, "dependsOn": [one for one in each.get("dependsOn", ()) if one in known]}
        for each in told["dependencies"]
        if each["ref"] in known
    ]
    head = {key: told[key] for key in ("$schema", "bomFormat", "specVersion", "version")}
    return {**head, "components": components, "dependencies": needs}


def licence(component: Mapping[str, Any]) -> str:
    """How a package says that it may be used, in short."""
    found = []
    for each in component.get("licenses", ()):
        one = each.get("license", {})
        found.append(str(each.get("expression") or one.get("id") or one.get("name")).removeprefix(_CLASSIFIER))
    # The same is often told twice: as an expression, and as a classifier.
    short = [text if len(text) < 60 and "\n" not in text else _UNTOLD for text in found]
    return ", ".join(dict.fromkeys(short[:1])) or _UNTOLD


def page(boms: Mapping[str, Bom]) -> str:
    """The page of licences: a table for each list."""
    lines = [
        "# Licences of what is used",
        "",
        "Made by `make sbom` of the lists in [sbom](sbom), which are in the form of CycloneDX. A package with a star",
        "is part of the VSIX. Everything else is installed by whoever uses it, or is needed for the tests alone.",
    ]
    titles = {"python": "Python", "client": "The extension, and what builds it"}
    for name, bom in boms.items():
        lines += ["", f"## {titles[name]}", "", "| package | version | licence |", "|---|---|---|"]
        for each in sorted(bom["components"], key=lambda one: one["name"].lower()):
            star = " *" if _is_brought(each) else ""
            lines.append(f"| {each['name']}{star} | {each['version']} | {licence(each)} |")
    return "\n".join(lines) + "\n"


def _is_brought(component: Mapping[str, Any]) -> bool:
    return any(each["name"] == "mase:bundled" for each in component.get("properties", ()))


if __name__ == "__main__":
    main(sys.argv[1])
