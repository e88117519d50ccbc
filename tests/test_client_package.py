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
    project = tomllib.loads((CLIENT.parent / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "mase_server.__version__"}
    lock = json.loads((CLIENT / "package-lock.json").read_text())
    assert {PACKAGE["version"], lock["version"], lock["packages"][""]["version"]} == {__version__}


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


def test_the_client_package_is_the_one_that_the_generator_writes() -> None:
    from docs import typescript

    assert {path: path.read_text("utf-8") for path in typescript.files()} == typescript.files(), "run `make docs`"


def test_the_client_package_has_the_version_and_the_codec_of_the_extension() -> None:
    own = json.loads((CLIENT / "client" / "package.json").read_text())
    codec = {name: PACKAGE["devDependencies"][name] for name in own["dependencies"]}
    assert (own["version"], own["dependencies"]) == (__version__, codec)


def test_no_type_of_a_servers_answer_is_written_a_second_time_in_the_extension() -> None:
    shapes = r"export interface (\w+) \{\n(.*?)^\}"
    package = (CLIENT / "client" / "src" / "records.ts").read_text()
    lines = {name: _keys(body) for name, body in re.findall(shapes, package, re.DOTALL | re.MULTILINE)}
    extension = "\n".join(path.read_text() for path in (CLIENT / "src").rglob("*.ts"))
    for name, body in re.findall(shapes, extension, re.DOTALL | re.MULTILINE):
        keys = _keys(body)
        same = [record for record, others in lines.items() if len(keys) > 3 and keys == others]
        assert not same, f"{name} is the package's {same[0]}"


def _keys(body: str) -> frozenset[str]:
    return frozenset(re.findall(r"^  (\w+)\??:", body, re.MULTILINE))


def test_each_notification_of_the_server_has_its_own_type_in_the_extension() -> None:
    from mase_server.lsp.listener import NOTIFICATIONS

    source = (CLIENT / "src" / "protocol.ts").read_text()
    typed = {name: kind for kind, name in re.findall(r"NotificationType<(\w+)>\('([^']+)'\)", source)}
    assert typed == {name: record.__name__ for name, record in NOTIFICATIONS.items()}


def test_every_command_about_passes_and_hardware_is_the_servers_too() -> None:
    from mase_server.lsp.features import COMMANDS as SERVED

    source = "".join((CLIENT / "src" / part / "commands.ts").read_text() for part in ("costs", "passes", "verilog"))
    elsewhere = {
        "mase.retrace",
        "mase.restart",
        "mase.pickRoot",
        "mase.pickInputs",
        "mase.writeInputs",
        "mase.showBreaks",
    }
    of_pages = {"mase.showCosts"}
    assert set(re.findall(r"'(mase\.\w+)': \(", source)) - of_pages == set(SERVED) - elsewhere
