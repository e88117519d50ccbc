"""The extension's package.json and texts against what the server and the extension really have."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from mase_server import __version__
from mase_server.lsp.settings import SETTINGS, Settings, parse

CLIENT = Path(__file__).resolve().parents[1] / "mase_client_vscode"
PACKAGE = json.loads((CLIENT / "package.json").read_text())
PROPERTIES = PACKAGE["contributes"]["configuration"]["properties"]
COMMANDS = {command["command"]: command for command in PACKAGE["contributes"]["commands"]}
README = (CLIENT / "README.md").read_text()
#: Settings that the extension itself reads and the server never sees.
OWN = {"mase.server.command", "mase.trace.server"}


def test_package_server_and_extension_have_one_version() -> None:
    project = tomllib.loads((CLIENT.parent / "pyproject.toml").read_text())["project"]
    lock = json.loads((CLIENT / "package-lock.json").read_text())
    assert {project["version"], PACKAGE["version"], lock["version"], lock["packages"][""]["version"]} == {__version__}


def test_the_settings_are_those_that_the_server_reads() -> None:
    assert set(PROPERTIES) - OWN == {f"mase.{setting.key}" for setting in SETTINGS}


def test_the_defaults_are_the_servers_own() -> None:
    defaults = {name.removeprefix("mase."): schema["default"] for name, schema in PROPERTIES.items() if name not in OWN}
    assert parse(defaults, Settings()) == Settings()


@pytest.mark.parametrize("name", PROPERTIES)
def test_every_setting_has_a_description_and_a_scope(name: str) -> None:
    schema = PROPERTIES[name]
    assert (schema.get("description") or schema["markdownDescription"]).endswith(".")
    assert schema["scope"] in {"resource", "window", "machine-overridable"}


@pytest.mark.parametrize("name", ["mase.interpreter", "mase.server.command"])
def test_what_names_a_program_is_set_per_machine(name: str) -> None:
    assert PROPERTIES[name]["scope"] == "machine-overridable"


@pytest.mark.parametrize("name", [*PROPERTIES, *(f"MASE: {command['title']}" for command in COMMANDS.values())])
def test_the_readme_names_every_setting_and_command(name: str) -> None:
    assert name in README


def test_an_untrusted_workspace_leaves_the_extension_off() -> None:
    assert PACKAGE["capabilities"]["untrustedWorkspaces"]["supported"] is False


def test_no_other_extension_is_required() -> None:
    assert "extensionDependencies" not in PACKAGE


def test_the_lock_file_names_no_registry_and_pins_by_content() -> None:
    packages = json.loads((CLIENT / "package-lock.json").read_text())["packages"]
    assert not [name for name, entry in packages.items() if "resolved" in entry]
    assert not [name for name, entry in packages.items() if name and "integrity" not in entry]


def test_the_states_of_a_trace_are_the_servers() -> None:
    from mase_server.daemon.status import STATES

    source = (CLIENT / "src" / "protocol.ts").read_text()
    union = source[source.index("type TraceState") : source.index(";", source.index("type TraceState"))]
    assert set(re.findall(r"'(\w+)'", union)) == set(STATES)


def test_the_kinds_of_arguments_are_the_servers() -> None:
    from typing import get_args

    from mase_server.arguments import Kind

    source = (CLIENT / "src" / "protocol.ts").read_text()
    union = source[source.index("type ArgumentKind") :].partition(";")[0]
    assert set(re.findall(r"'(\w+)'", union)) == set(get_args(Kind))


def test_what_the_extension_reads_of_a_pass_is_what_the_server_tells() -> None:
    from mase_server.passes.registry import built_in

    source = (CLIENT / "src" / "protocol.ts").read_text()
    told = built_in()["quantize"].to_wire()
    for name, known in (("PassArgument", told["arguments"][0]), ("Pass", told)):
        body = source[source.index(f"interface {name} {{") :].partition("}")[0]
        assert set(re.findall(r"^  (\w+)", body, re.MULTILINE)) <= set(known)


def test_what_the_extension_reads_of_hardware_is_what_the_server_tells() -> None:
    from mase_server.building import EMISSION_KEYS, SIMULATION_KEYS
    from mase_server.lsp.builds import declared

    source = (CLIENT / "src" / "protocol.ts").read_text()
    told = {"Emission": {"uri", *EMISSION_KEYS}, "Simulation": {"summary", *SIMULATION_KEYS}, "BuildForm": declared({})}
    for name, known in told.items():
        body = source[source.index(f"interface {name} ") :].partition("}")[0]
        assert set(re.findall(r"^  (\w+)", body, re.MULTILINE)) <= set(known)


def test_every_command_about_passes_and_hardware_is_the_servers_too() -> None:
    from mase_server.lsp.features import COMMANDS as SERVED

    source = "".join((CLIENT / "src" / part / "commands.ts").read_text() for part in ("passes", "verilog"))
    elsewhere = {"mase.retrace", "mase.restart", "mase.pickRoot", "mase.pickInputs", "mase.writeInputs"}
    assert set(re.findall(r"'(mase\.\w+)': \(", source)) == set(SERVED) - elsewhere
