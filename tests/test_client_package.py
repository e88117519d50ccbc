"""The extension's package.json and texts against what the server and the extension really have."""

import json
import re
import tomllib
from pathlib import Path

from mase_server import __version__
from mase_server.lsp.workspace import SETTINGS, Settings, parse_settings

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
    assert parse_settings(defaults, Settings()) == Settings()


def test_every_setting_has_a_description_and_a_scope() -> None:
    told = {name: schema.get("description") or schema["markdownDescription"] for name, schema in PROPERTIES.items()}
    assert [name for name, text in told.items() if not text.endswith(".")] == []
    assert {schema["scope"] for schema in PROPERTIES.values()} == {"resource", "window", "machine-overridable"}


def test_what_names_a_program_is_set_per_machine() -> None:
    programs = ("mase.interpreter", "mase.server.command")
    assert {PROPERTIES[name]["scope"] for name in programs} == {"machine-overridable"}


def test_the_readme_names_every_setting_and_command() -> None:
    names = [*PROPERTIES, *(f"MASE: {command['title']}" for command in COMMANDS.values())]
    assert [name for name in names if name not in README] == []


def test_an_untrusted_workspace_leaves_the_extension_off() -> None:
    assert PACKAGE["capabilities"]["untrustedWorkspaces"]["supported"] is False


def test_no_other_extension_is_required() -> None:
    assert "extensionDependencies" not in PACKAGE


def test_the_lock_file_names_no_registry_and_pins_by_content() -> None:
    packages = json.loads((CLIENT / "package-lock.json").read_text())["packages"]
    assert not [name for name, entry in packages.items() if "resolved" in entry]
    assert not [name for name, entry in packages.items() if name and "integrity" not in entry]


def test_the_types_of_the_servers_records_are_those_that_the_generator_writes() -> None:
    from docs.typescript import FILE, typescript

    assert FILE.read_text("utf-8") == typescript(), "run `make docs`"


def test_each_notification_of_the_server_has_its_own_type_in_the_extension() -> None:
    from mase_server.lsp.listener import NOTIFICATIONS

    source = (CLIENT / "src" / "protocol.ts").read_text()
    typed = {name: kind for kind, name in re.findall(r"NotificationType<(\w+)>\('([^']+)'\)", source)}
    assert typed == {name: record.__name__ for name, record in NOTIFICATIONS.items()}


def test_every_command_about_passes_and_hardware_is_the_servers_too() -> None:
    from mase_server.lsp.features import COMMANDS as SERVED

    source = "".join((CLIENT / "src" / part / "commands.ts").read_text() for part in ("passes", "verilog"))
    elsewhere = {"mase.retrace", "mase.restart", "mase.pickRoot", "mase.pickInputs", "mase.writeInputs"}
    assert set(re.findall(r"'(mase\.\w+)': \(", source)) == set(SERVED) - elsewhere
