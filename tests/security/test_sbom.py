"""The list of what the project is made of says what is pinned, and nothing of the machine that it was made on."""

import json
import re
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from docs.sbom import CLIENT, FOLDER, PAGE, named, page, plain

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(CLIENT / "scripts"))
from bundle_server import NEEDED, closure  # noqa: E402


def listed(name):
    return json.loads((FOLDER / f"{name}.cdx.json").read_text("utf-8"))


def versions(bom):
    return {(named(each["name"]), each["version"].split("+")[0]) for each in bom["components"]}


def bundled(bom):
    marked = [each for each in bom["components"] for one in each.get("properties", ()) if one["name"] == "mase:bundled"]
    return {named(each["name"]) for each in marked}


def pins():
    lines = (ROOT / "tests" / "requirements.txt").read_text("utf-8").splitlines()
    told = [line for line in lines if line and not line.startswith("#")]
    assert [line for line in told if not re.fullmatch(r"[\w.-]+==[\w.]+", line)] == [], "these are not pinned"
    return {(named(name), version) for name, _, version in (line.partition("==") for line in told)}


def test_it_lists_each_package_that_is_pinned():
    assert versions(listed("python")) == pins(), "run `make sbom`"


def test_it_lists_each_package_of_the_clients_lock_file():
    lock = json.loads((CLIENT / "package-lock.json").read_text("utf-8"))["packages"]
    locked = {(named(path.rpartition("node_modules/")[2]), each["version"]) for path, each in lock.items() if path}
    assert versions(listed("client")) == locked, "run `make sbom`"
    unlocked = [path for path, each in lock.items() if path and not each.get("integrity", "").startswith("sha512-")]
    assert unlocked == [], "these could be other packages tomorrow"


def test_the_client_names_one_version_of_everything():
    told = json.loads((CLIENT / "package.json").read_text("utf-8"))
    for name, version in (told["dependencies"] | told["devDependencies"]).items():
        assert re.fullmatch(r"\d+\.\d+\.\d+", version), f"{name} is {version}"


def test_what_the_extension_brings_is_marked():
    assert bundled(listed("python")) == {named(each) for each in closure(NEEDED)}
    assert {"elkjs", "vscode-languageclient"} <= bundled(listed("client"))
    assert "esbuild" not in bundled(listed("client"))


def test_what_users_install_is_among_it():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needs = [*project["dependencies"], *(one for each in project["optional-dependencies"].values() for one in each)]
    assert {named(Requirement(each).name) for each in needs} <= {name for name, _ in pins()}


def test_the_page_of_licences_is_made_of_it():
    assert PAGE.read_text("utf-8") == page({name: listed(name) for name in ("python", "client")}), "run `make sbom`"


@pytest.mark.parametrize("name", ["python", "client"])
def test_it_tells_nothing_of_a_machine(name):
    text = (FOLDER / f"{name}.cdx.json").read_text("utf-8")
    told = json.loads(text)
    assert told["bomFormat"] == "CycloneDX"
    assert not {"serialNumber", "metadata"} & told.keys()
    assert re.findall(r'file:|"/|127\.0\.0\.1|localhost', text) == []
    known = {each["bom-ref"] for each in told["components"]}
    assert {one for each in told["dependencies"] for one in (each["ref"], *each["dependsOn"])} <= known


def test_a_list_keeps_only_what_is_named_and_no_more_of_it_than_is_needed():
    told = {
        "$schema": "s", "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "serialNumber": "x",
        "components": [
            {"bom-ref": "a", "name": "A.b", "version": "1", "externalReferences": [{"url": "file:///home/x"}]},
            {"bom-ref": "b", "name": "other", "version": "2"}, {"bom-ref": "c", "name": "mase-server", "version": "3"},
        ],
        "dependencies": [{"ref": "a", "dependsOn": ["b"]}, {"ref": "c", "dependsOn": ["a"]}],
    }  # fmt: skip
    assert plain(told, {"a-b"}, ["a_b"]) == {
        "$schema": "s", "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
        "components": [{"bom-ref": "a", "name": "A.b", "version": "1",
                        "properties": [{"name": "mase:bundled", "value": "vsix"}]}],
        "dependencies": [{"ref": "a", "dependsOn": []}],
    }  # fmt: skip
